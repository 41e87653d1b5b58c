//! Scanner of SQL commands, with the rules of psql's scanner and `standard_conforming_strings` on.
//!
//! A command ends at a semicolon outside of quotes, comments, parentheses and routine bodies, or at a
//! backslash. The text is read once, except text that may continue a string or start a dollar quote, which is
//! read twice.

use crate::effort;
use crate::value::is_space;

/// Reason why the scanner stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// After a semicolon, which is part of the command.
    Semicolon,
    /// After a backslash, which is not part of it.
    Backslash,
    /// At the end of the text.
    End,
}

/// Scanner of commands. As in pgbench, parentheses interrupted by a backslash command stay open.
#[derive(Debug)]
pub struct Scanner<'a> {
    text: &'a [u8],
    /// Position of the next byte. The parser of backslash commands moves it.
    pub at: usize,
    brackets: usize,
    routine: Routine,
}

impl<'a> Scanner<'a> {
    /// Creates a scanner of a complete script.
    pub fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0, brackets: 0, routine: Routine::default() }
    }

    /// Appends the text of the next command to `command`, which is empty. Leading white space and comments are
    /// skipped.
    pub fn scan(&mut self, command: &mut Vec<u8>) -> Stop {
        loop {
            let rest = &self.text[self.at..];
            match rest {
                [] => return Stop::End,
                [b'\\', forced @ (b';' | b':'), ..] => {
                    command.push(*forced);
                    self.at += 2;
                    if *forced == b';' {
                        self.routine.end_statement();
                    }
                }
                [b'\\', ..] => {
                    self.at += 1;
                    return Stop::Backslash;
                }
                [b';', ..] => {
                    self.copy(1, command);
                    if self.brackets == 0 && !self.routine.is_open() {
                        self.routine.end_statement();
                        return Stop::Semicolon;
                    }
                }
                [b':', b'{', b'?', ..] => self.test_of_variable(command),
                _ => {
                    let length = self.token(rest);
                    if command.is_empty() && is_blank(rest) {
                        self.at += length;
                    } else {
                        self.copy(length, command);
                    }
                }
            }
        }
    }

    fn copy(&mut self, length: usize, command: &mut Vec<u8>) {
        effort::spend(length);
        command.extend_from_slice(&self.text[self.at..self.at + length]);
        self.at += length;
    }

    /// `:{?name}` tests in psql whether a variable is defined. pgbench's scanner recognizes it, but has no
    /// variables here.
    fn test_of_variable(&mut self, command: &mut Vec<u8>) {
        let name = &self.text[self.at + 3..];
        let length = count(name, |byte| is_word(byte) && byte != b'$');
        if length > 0 && name.get(length) == Some(&b'}') {
            command.extend_from_slice(b"FALSE");
            self.at += length + 4;
        } else {
            self.copy(1, command);
        }
    }

    /// The length of the next token, which does not end the command.
    fn token(&mut self, rest: &[u8]) -> usize {
        match rest {
            [b'-', b'-', ..] => count(rest, |byte| !matches!(byte, b'\n' | b'\r')),
            [b'/', b'*', ..] => comment_length(rest),
            [b'\'', ..] => string_length(rest, false),
            [b'"', ..] => 1 + count(&rest[1..], |byte| byte != b'"') + usize::from(rest[1..].contains(&b'"')),
            [b'$', ..] => dollar_length(rest),
            [b':', b':', ..] => 2,
            // A variable. Its name is not a word of the statement and contains no dollar sign.
            [b':', rest @ ..] => 1 + count(rest, |byte| is_word(byte) && byte != b'$'),
            [b'(', ..] => {
                self.brackets += 1;
                1
            }
            [b')', ..] => {
                self.brackets = self.brackets.saturating_sub(1);
                1
            }
            [b'e' | b'E', b'\'', ..] => 1 + string_length(&rest[1..], true),
            [b'b' | b'B' | b'x' | b'X' | b'n' | b'N', b'\'', ..] | [b'u' | b'U', b'&', ..] => 1,
            [byte, ..] if is_space(*byte) => count(rest, is_space),
            [byte, ..] if byte.is_ascii_digit() => number_length(rest),
            [byte, ..] if is_word(*byte) => {
                let length = count(rest, is_word);
                self.routine.word(&rest[..length], self.brackets == 0);
                length
            }
            _ => 1,
        }
    }
}

fn count(text: &[u8], wanted: impl Fn(u8) -> bool) -> usize {
    let length = text.iter().take_while(|&&byte| wanted(byte)).count();
    effort::spend(length);
    length
}

fn is_blank(rest: &[u8]) -> bool {
    matches!(rest, [b'-', b'-', ..]) || rest.first().is_some_and(|&byte| is_space(byte))
}

/// Whether a byte continues an identifier.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || byte >= 0x80
}

/// The length of a comment including nested ones; to the end of the text if it is not closed.
fn comment_length(text: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0_usize);
    loop {
        effort::spend(1);
        match &text[at..] {
            [] => return at,
            [b'/', b'*', ..] => {
                depth += 1;
                at += 2;
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
}

/// The length of a string from its quote, including its continuations on other lines.
fn string_length(text: &[u8], escapes: bool) -> usize {
    let mut at = 1;
    loop {
        effort::spend(1);
        match &text[at.min(text.len())..] {
            [] => return text.len(),
            [b'\\', ..] if escapes => at += 2,
            [b'\'', b'\'', ..] => at += 2,
            [b'\'', rest @ ..] => match continuation_length(rest) {
                Some(length) => at += 1 + length,
                None => return at + 1,
            },
            _ => at += 1,
        }
    }
}

/// The length between a closing quote and the quote that continues the string, inclusive: white space and
/// comments with a newline.
fn continuation_length(text: &[u8]) -> Option<usize> {
    let (mut at, mut newline) = (0, false);
    loop {
        effort::spend(1);
        match &text[at..] {
            [b'\'', ..] => return newline.then_some(at + 1),
            [b'\n' | b'\r', ..] => {
                newline = true;
                at += 1;
            }
            [byte, ..] if is_space(*byte) => at += 1,
            comment @ [b'-', b'-', ..] => at += count(comment, |byte| !matches!(byte, b'\n' | b'\r')),
            _ => return None,
        }
    }
}

/// The length of a dollar-quoted string, a parameter, or a dollar sign alone.
fn dollar_length(text: &[u8]) -> usize {
    if text.get(1).is_some_and(u8::is_ascii_digit) {
        return 1 + count(&text[1..], |byte| byte.is_ascii_digit());
    }
    let tag = 1 + count(&text[1..], |byte| is_word(byte) && byte != b'$');
    if text.get(tag) != Some(&b'$') {
        return 1;
    }
    let (delimiter, rest) = text.split_at(tag + 1);
    // A tag contains no dollar sign, so a comparison ends at the next one: the search takes one pass.
    let closing = (0..rest.len()).find(|&at| rest[at] == b'$' && rest[at..].starts_with(delimiter));
    let length = closing.map_or(text.len(), |at| 2 * delimiter.len() + at);
    effort::spend(length);
    length
}

/// The length of a number. A dollar sign after it starts a quote, while one after a word belongs to the word.
fn number_length(text: &[u8]) -> usize {
    let digits = |at: usize| count(&text[at..], |byte| byte.is_ascii_digit());
    let mut at = digits(0);
    if text.get(at) == Some(&b'.') && text.get(at + 1) != Some(&b'.') {
        at += 1 + digits(at + 1);
    }
    let exponent = match &text[at..] {
        [b'e' | b'E', b'0'..=b'9', ..] => 1,
        [b'e' | b'E', b'+' | b'-', b'0'..=b'9', ..] => 2,
        _ => return at,
    };
    at + exponent + digits(at + exponent)
}

/// Relevant words of a statement.
#[derive(Debug, Default)]
pub struct Routine {
    words: usize,
    /// Initials of the first four words that are CREATE, OR, REPLACE, FUNCTION or PROCEDURE.
    initials: [u8; 4],
    depth: usize,
}

impl Routine {
    /// Resets at the end of a statement.
    pub fn end_statement(&mut self) {
        self.words = 0;
    }

    /// Whether a body is open.
    pub fn is_open(&self) -> bool {
        self.depth > 0
    }

    /// Processes the next word. `outside`: it is not in parentheses.
    pub fn word(&mut self, word: &[u8], outside: bool) {
        if self.words == 0 {
            self.initials = [0; 4];
        }
        let is = |other: &str| word.eq_ignore_ascii_case(other.as_bytes());
        if ["create", "function", "procedure", "or", "replace"].into_iter().any(is) {
            if let Some(initial) = self.initials.get_mut(self.words) {
                *initial = word[0].to_ascii_lowercase();
            }
        }
        self.words += 1;
        if !outside || !self.creates_routine() {
        } else if is("begin") || (is("case") && self.is_open()) {
            self.depth += 1;
        } else if is("end") {
            self.depth = self.depth.saturating_sub(1);
        }
    }

    fn creates_routine(&self) -> bool {
        matches!(self.initials, [b'c', b'f' | b'p', ..] | [b'c', b'o', b'r', b'f' | b'p'])
    }
}
