//! Words of a backslash command: separated by blanks, up to the end of the line. A backslash before the newline
//! continues the line.

use crate::effort;

/// A word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word<'a> {
    /// Its bytes.
    pub text: &'a [u8],
    /// Start position in pgbench's messages: the current position minus the length.
    ///
    /// This differs from the actual start if a line continuation follows the word.
    pub start: usize,
}

/// Reads the next word from the byte `at` of a script and moves `at` after it. At the end of the command it
/// returns `None`, with `at` after the newline.
pub fn next<'a>(script: &'a [u8], at: &mut usize) -> Option<Word<'a>> {
    loop {
        effort::spend(1);
        let rest = &script[*at..];
        let continued = continuation_length(rest);
        match rest {
            _ if continued > 0 => *at += continued,
            [] => return None,
            [b'\n', ..] => {
                *at += 1;
                return None;
            }
            [byte, ..] if is_blank(*byte) => *at += 1,
            _ => break,
        }
    }
    let rest = &script[*at..];
    let mut length = rest.iter().take_while(|&&byte| byte != b'\n' && !is_blank(byte)).count();
    effort::spend(length);
    let mut end = length;
    if rest[length - 1] == b'\\' {
        let continued = continuation_length(&rest[length - 1..]);
        if continued > 0 {
            end = length - 1 + continued;
            length -= 1;
        }
    }
    *at += end;
    Some(Word { text: &rest[..length], start: *at - length })
}

fn continuation_length(text: &[u8]) -> usize {
    match text {
        [b'\\', b'\n', ..] => 2,
        [b'\\', b'\r', b'\n', ..] => 3,
        _ => 0,
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | 0x0b | 0x0c)
}
