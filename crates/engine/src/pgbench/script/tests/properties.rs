use proptest::prelude::*;

use super::*;

/// Pieces that scripts are made of, and what breaks them.
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
    fn any_bytes_are_read_without_a_panic(text: Vec<u8>) {
        let _ = Scripts::default().add("s", &text, 1);
    }

    #[test]
    fn any_pieces_are_read_without_a_panic(pieces in prop::collection::vec(piece(), 0..40)) {
        if let Err(error) = Scripts::default().add("s", pieces.concat().as_bytes(), 1) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn text_without_backslashes_is_kept_but_for_space_and_comments_between_commands(text in "[^\\\\\0]{0,60}") {
        let kept = |text: &str| text.chars().filter(|c| !c.is_whitespace() && *c != '-').collect::<String>();
        prop_assume!(!text.contains("--") && !text.contains(":{?"));
        let Ok(()) = Scripts::default().add("s", text.as_bytes(), 1) else { return Ok(()) };
        prop_assert_eq!(kept(&statements(&text).concat()), kept(&text));
    }
}

/// Each of these would take many minutes if the time grew with the square of the length.
#[test]
fn reading_takes_time_in_proportion_to_the_length() {
    const COPIES: usize = 1 << 17;
    for piece in [
        "'a' ", "$a ", "$a$ ", "/*", "(", "' ", "--\n", ";", "a:", ":a ", "1e ", "\"", "e'\n", "\\;", "\\\n",
        "--'",
    ] {
        let text = piece.repeat(COPIES);
        let _ = Scripts::default().add("s", text.as_bytes(), 1);
    }
    for piece in ["\\set x 1\n", "\\if 1\n", "\\if 1\n\\endif\n", "\\x", "\\shell a\n", "select 1 \\gset\n"] {
        let _ = Scripts::default().add("s", piece.repeat(COPIES / 16).as_bytes(), 1);
    }
    for piece in ["1 +", "1,", "(", "not ", "\\\n", "1 is null ", "f", "- "] {
        let text = format!("\\set x {}", piece.repeat(COPIES));
        let _ = Scripts::default().add("s", text.as_bytes(), 1);
    }
}
