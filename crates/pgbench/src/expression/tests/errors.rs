//! Errors of parsing and evaluation.

use super::*;
use crate::expression::parser::DEPTH_MAX;

/// The message with its detail, the column of the caret, and the length of the line.
fn refused(text: &str) -> (String, usize, usize) {
    let mut names = Names::default();
    let error = Expression::parse(text.as_bytes(), 0, &mut names).unwrap_err();
    let detail = error.detail.map(|detail| format!(" ({detail})")).unwrap_or_default();
    (format!("{}{detail}", error.message), error.at, error.line_end)
}

#[test]
fn syntax_errors_are_at_the_position_of_pgbenchs() {
    let table = [
        ("", "syntax error", 0, 0),
        ("\n", "syntax error", 0, 1),
        ("1 +\nselect", "syntax error", 3, 4),
        ("1 +", "syntax error", 2, 3),
        ("1 2", "syntax error", 2, 3),
        ("1 \\\n +\n", "syntax error", 6, 7),
        (";", "unexpected character (;)", 0, 1),
        ("1 + \"a\" b", "unexpected character (\")", 6, 9),
        (")  1 :", "unexpected character (:)", 5, 6),
        ("noSuchFunction()", "unexpected function name (noSuchFunction)", 13, 16),
        ("pi", "syntax error", 1, 2),
        ("least()", "at least one argument expected (least)", 6, 7),
        ("Greatest())", "at least one argument expected (greatest)", 9, 11),
        ("hash()", "unexpected number of arguments (hash)", 5, 6),
        ("hash(1,2,3)", "unexpected number of arguments (hash)", 10, 11),
        ("permute(1)", "unexpected number of arguments (permute)", 9, 10),
        ("permute(1, 2, 3, 4)", "unexpected number of arguments (permute)", 18, 19),
        ("ln(1.0, 2.0))", "unexpected number of arguments (ln)", 11, 13),
        ("pi(1)", "unexpected number of arguments (pi)", 4, 5),
        ("100000000000000000000", "bigint constant overflow (100000000000000000000)", 20, 21),
        ("9223372036854775808", "syntax error", 18, 19),
        ("1 - 9223372036854775808", "syntax error", 22, 23),
        ("-09223372036854775808", "bigint constant overflow (09223372036854775808)", 20, 21),
        ("1.0E309", "double constant overflow (1.0E309)", 6, 7),
        (".1E310", "double constant overflow (.1E310)", 5, 6),
        ("1e-400", "double constant overflow (1e-400)", 5, 6),
        ("1e", "syntax error", 1, 2),
        ("1..2", "syntax error", 3, 4),
        ("CASE TRUE THEN 1 ELSE 0 END", "syntax error", 8, 27),
        ("CASE END", "syntax error", 7, 8),
        ("CASE WHEN 1 THEN 2", "syntax error", 17, 18),
        ("CASE 1 WHEN 1 THEN 2 END", "syntax error", 5, 24),
        ("1 < 2 < 3", "syntax error", 6, 9),
        ("1 = 2 <> 3", "syntax error", 7, 10),
        ("1 is 2", "syntax error", 5, 6),
        ("1 is not not null", "syntax error", 11, 17),
        ("least(1,)", "syntax error", 8, 9),
        ("(1", "syntax error", 1, 2),
        ("1)", "syntax error", 1, 2),
        (": a", "unexpected character (:)", 0, 3),
        ("1 ! 2", "unexpected character (!)", 2, 5),
        ("\\ 1", "unexpected character (\\)", 0, 3),
    ];
    for (text, message, at, line_end) in table {
        let at = if text.is_empty() { 0 } else { at };
        assert_eq!(refused(text), (message.to_owned(), at, line_end), "{text:?}");
    }
}

#[test]
fn evaluation_errors_have_pgbenchs_messages() {
    let mut client = Client::new(&[
        ("foo", "bla"),
        ("badtrue", "trueXXX"),
        ("maxint", "9223372036854775807"),
        ("minint", "-9223372036854775808"),
    ]);
    let table = [
        ("1/0", "division by zero"),
        ("1 % 0", "division by zero"),
        (":nosuchvariable", "undefined variable \"nosuchvariable\""),
        (":1a", "undefined variable \"1a\""),
        ("least(0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16)", "too many function arguments, maximum is 16"),
        ("random(5,3)", "empty range given to random"),
        ("random(:minint, :maxint)", "random range is too large"),
        ("random(0, :maxint)", "random range is too large"),
        ("random_gaussian(0, 10, 1.0)", "gaussian parameter must be at least 2.000000 (not 1.000000)"),
        ("random_exponential(0, 10, 0.0)", "exponential parameter must be greater than zero (not 0.000000)"),
        ("random_zipfian(0, 10, 1)", "zipfian parameter must be in range [1.001, 1000] (not 1.000000)"),
        (
            "random_zipfian(0, 10, 1000000)",
            "zipfian parameter must be in range [1.001, 1000] (not 1000000.000000)",
        ),
        (":foo + 1", "malformed variable \"foo\" value: \"bla\""),
        (":badtrue or true", "malformed variable \"badtrue\" value: \"trueXXX\""),
        ("NOT 0.0", "cannot coerce double to boolean"),
        ("TRUE + 2", "cannot coerce boolean to int"),
        ("ln(TRUE)", "cannot coerce boolean to double"),
        ("TRUE + 2.0", "cannot coerce boolean to double"),
        ("random(FALSE, TRUE)", "cannot coerce boolean to int"),
        ("int(1E32)", "double to int overflow for 100000000000000005366162204393472.000000"),
        ("(1<<62) + (1<<62)", "bigint add out of range"),
        ("0 - (1<<62) - (1<<62) - (1<<62)", "bigint sub out of range"),
        ("- :minint", "bigint sub out of range"),
        ("2 * (1<<62)", "bigint mul out of range"),
        (":minint / -1", "bigint div out of range"),
        ("permute(0, 0, 1)", "permute size parameter must be greater than zero"),
    ];
    for (text, message) in table {
        assert_eq!(client.value(text), Err(message.to_owned()), "{text}");
    }
}

#[test]
fn nesting_of_operands_is_limited() {
    let nested = |depth: usize| format!("{}1{}", "(".repeat(depth), ")".repeat(depth));
    let mut client = Client::new(&[]);
    assert_eq!(client.value(&nested(DEPTH_MAX - 1)), Ok(Value::Int(1)));
    assert_eq!(refused(&nested(DEPTH_MAX)).0, "memory exhausted");
    assert_eq!(refused(&"- ".repeat(100_000)).0, "memory exhausted");
    assert_eq!(refused(&"case when ".repeat(100_000)).0, "memory exhausted");
    // A chain of operators is not nested.
    let chain = vec!["1"; 100_000].join(" + ");
    assert_eq!(client.value(&chain), Ok(Value::Int(100_000)));
}
