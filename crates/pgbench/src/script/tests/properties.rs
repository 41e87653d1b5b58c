use proptest::prelude::*;

use super::*;
use crate::effort;

/// Pieces of scripts, including invalid ones.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        "(select|create|or|replace|function|begin|end|case|:a|::|:\\{\\?a\\}|\\\\;|\\\\:|;|;\n)",
        "('|''|E'|\"|\\$\\$|\\$a\\$|\\$|/\\*|\\*/|--|\\(|\\)|\\\\|\n|\r\n|\\\\\n| )",
        "\\\\(set|if|elif|else|endif|gset|aset|sleep|shell|setshell|startpipeline|set x|sleep 1|if 1|x)",
        "( [a-z0-9.+*<>=]{0,5}|\n)",
    ]
}

proptest! {
    #[test]
    fn parsing_any_bytes_does_not_panic(text: Vec<u8>) {
        let _ = Scripts::default().add("s", &text, 1);
    }

    #[test]
    fn parsing_any_pieces_does_not_panic(pieces in prop::collection::vec(piece(), 0..40)) {
        if let Err(error) = Scripts::default().add("s", pieces.concat().as_bytes(), 1) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn text_is_preserved_except_space_and_comments_between_commands(text in "[^\\\\\0]{0,60}") {
        let kept = |text: &str| text.chars().filter(|c| !c.is_whitespace() && *c != '-').collect::<String>();
        prop_assume!(!text.contains("--") && !text.contains(":{?"));
        let Ok(()) = Scripts::default().add("s", text.as_bytes(), 1) else { return Ok(()) };
        prop_assert_eq!(kept(&statements(&text).concat()), kept(&text));
    }
}

/// Number of bytes read and moved by parsing a script.
fn effort(text: &str) -> usize {
    effort::of(|| drop(Scripts::default().add("s", text.as_bytes(), 1)))
}

/// A built-in script, split into pieces that are reordered, repeated or omitted.
fn mutation() -> impl Strategy<Value = String> {
    let cuts = prop::collection::vec((0..1000_usize, 0..1000_usize, piece()), 1..12);
    (0..builtin::BUILTINS.len(), cuts).prop_map(|(script, cuts)| {
        let text = builtin::BUILTINS[script].text;
        let part = |(from, to, piece): (usize, usize, String)| {
            let (from, to) = (from % text.len(), to % (text.len() + 1));
            text.get(from.min(to)..from.max(to)).unwrap_or_default().to_owned() + &piece
        };
        cuts.into_iter().map(part).collect()
    })
}

proptest! {
    #[test]
    fn parsing_mutated_builtin_scripts_does_not_panic(text in mutation()) {
        if let Err(error) = Scripts::default().add("s", text.as_bytes(), 1) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn every_byte_is_read_only_a_few_times(
        pieces in prop::collection::vec(piece(), 0..40), copies in 1..50_usize
    ) {
        let text = pieces.concat().repeat(copies);
        prop_assert!(effort(&text) <= 8 * text.len(), "{} for {} bytes", effort(&text), text.len());
    }
}

/// A test of linear time without a clock.
#[test]
fn parsing_takes_linear_time() {
    const COPIES: usize = 1 << 12;
    let twice = |first: &str, piece: &str| {
        let of = |copies: usize| effort(&(first.to_owned() + &piece.repeat(copies)));
        let (once, twice) = (of(COPIES), of(2 * COPIES));
        assert!(once > 0 && twice <= 2 * once + 100, "{first}{piece}: {once}, then {twice}");
    };
    for piece in "'a' ¦'a' \n¦'a' --\n¦$a ¦$a$ ¦$a¦$¦/*¦/**/¦*/¦(¦)¦' ¦--\n¦;¦a:¦:a ¦:¦::¦:{?¦:{?a}¦1e ¦1.¦\
        \"¦e'\n¦\\;¦\\\n¦--'¦create function begin ;¦\\set x 1\n¦\\if 1\n¦\\if 1\n\\endif\n¦\\x¦\
        \\shell a\n¦select 1 \\gset\n"
        .split('¦')
    {
        twice("", piece);
    }
    twice("\\if 1\n", "\\elif 1\n");
    for piece in "1 +¦1,¦(¦not ¦\\\n¦f¦- ¦1 > (¦case when ¦case when 1 then 1 else ¦abs(¦:a + ".split('¦')
    {
        twice("\\set x ", piece);
    }
    for piece in [" is null", " + 1", " > 1", " is null > 1", " is null >= 1 + 1", " and 2 > 1", " or true"] {
        twice("\\set x 1", piece);
    }
    twice("\\set x greatest(1", ", 2 > 1");
}

/// The parser is recursive: deep nesting is an error before the stack overflows, while length is not limited.
#[test]
fn nesting_is_limited_and_length_is_not() {
    let add =
        |text: String| Scripts::default().add("s", text.as_bytes(), 1).map_err(|error| error.to_string());
    let set = |first: &str, copies: usize, last: &str| {
        add(format!("\\set x {}1{}", first.repeat(copies), last.repeat(copies)))
    };
    for (first, last) in [
        ("(", ")"),
        ("- ", ""),
        ("not ", ""),
        ("~", ""),
        ("abs(", ")"),
        ("case when true then ", " end"),
        ("case when ", " then 1 end"),
        ("1 > (", ")"),
        ("1 + (", ")"),
        ("true and (", ")"),
    ] {
        assert_eq!(set(first, 100, last), Ok(()), "{first}");
        let error = set(first, 100_000, last).unwrap_err();
        assert!(error.contains("memory exhausted"), "{first}: {}", &error[error.len() - 100..]);
    }
    let cases = [" + 1", " and true", " > 1 or 1", " is null"]
        .map(|piece| "\\set x 1".to_owned() + &piece.repeat(100_000));
    let nested = "\\if 1\n".repeat(100_000) + &"\\endif\n".repeat(100_000);
    for text in cases.into_iter().chain([nested, "(".repeat(1_000_000), "/*".repeat(1_000_000)]) {
        assert_eq!(add(text), Ok(()));
    }
}
