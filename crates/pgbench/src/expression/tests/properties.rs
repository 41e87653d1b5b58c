use proptest::prelude::*;

use super::*;

/// Texts of expressions, most of them valid.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(|int| int.to_string()),
        any::<f64>()
            .prop_filter("normal", |double| double.is_normal())
            .prop_map(|double| format!("{double:e}")),
        "(null|TRUE|False|:[a-z][a-z0-9_]{0,3})",
    ];
    leaf.prop_recursive(6, 64, 4, |inner| {
        let sign = "(\\+|-|\\*|/|%|\\||&|#|<<|>>|<|>|<=|>=|=|<>|!=| and | OR )";
        prop_oneof![
            (inner.clone(), sign, inner.clone())
                .prop_map(|(left, sign, right)| format!("{left} {sign} {right}")),
            inner.clone().prop_map(|operand| format!("({operand})")),
            ("(-|\\+|~|not )", inner.clone()).prop_map(|(sign, operand)| format!("{sign} {operand}")),
            (inner.clone(), "( is null| is not true| isnull| notnull)").prop_map(|(left, test)| left + &test),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(a, b, c)| format!("case when {a} then {b} else {c} end")),
            (
                "(abs|debug|double|exp|greatest|hash|hash_fnv1a|int|least|ln|mod|permute|power|random|\
                 random_exponential|random_gaussian|random_zipfian|sqrt)",
                prop::collection::vec(inner, 1..4),
            )
                .prop_map(|(name, arguments)| format!("{name}({})", arguments.join(","))),
        ]
    })
}

proptest! {
    #[test]
    fn printed_expressions_round_trip(text in expression()) {
        let mut names = Names::default();
        let Ok((read, _)) = Expression::parse(text.as_bytes(), 0, &mut names) else { return Ok(()) };
        let printed = read.text(&names);
        let again = Expression::parse(printed.as_bytes(), 0, &mut names);
        prop_assert_eq!(again.map(|(again, _)| again), Ok(read), "{}", printed);
    }

    #[test]
    fn an_evaluation_returns_one_value_or_an_error(text in expression()) {
        let mut client = Client::new(&[("a", "1"), ("b", "2.5"), ("c", "x")]);
        let Ok((read, _)) = Expression::parse(text.as_bytes(), 0, &mut client.names) else { return Ok(()) };
        let value = client.run(&read);
        prop_assert!(value.is_err() || client.stack.is_empty(), "{:?} left", client.stack);
    }

    #[test]
    fn parsing_any_bytes_does_not_panic(text: Vec<u8>) {
        let _ = Expression::parse(&text, 0, &mut Names::default());
    }

    #[test]
    fn parsing_any_words_does_not_panic(
        words in prop::collection::vec("(case|when|then|else|end|not|is|null|and|[-+~<>=(),;:\\\\]|[0-9.e]{1,4}|[a-z]{1,2}|\\\\\n|\n)", 0..40)
    ) {
        let text = words.join(" ");
        if let Err(error) = Expression::parse(text.as_bytes(), 0, &mut Names::default()) {
            prop_assert!(error.at < text.len().max(1) && error.line_end <= text.len());
        }
    }
}
