//! Connection strings of the form `keyword = value …`.
//!
//! White space around the sign is allowed, values may be single-quoted, and a backslash escapes a character.
//! Errors contain the position and never the text, which may be part of a password.

use super::error::{ConninfoError, problem};

/// Returns the pairs in order.
pub(super) fn parse(text: &str) -> Result<Vec<(String, String)>, ConninfoError> {
    let mut pairs = Vec::new();
    let mut reader = Reader { text, at: 0 };
    loop {
        reader.skip_blanks();
        if reader.peek().is_none() {
            return Ok(pairs);
        }
        let start = reader.at;
        let keyword = reader.keyword();
        reader.skip_blanks();
        if reader.next() != Some('=') {
            return Err(problem(format!(
                "no \"=\" after the word at character {}; quote a value that holds blanks",
                text[..start].chars().count() + 1
            )));
        }
        reader.skip_blanks();
        let value = reader.value(&keyword)?;
        pairs.push((keyword, value));
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn skip_blanks(&mut self) {
        while self.peek().is_some_and(is_blank) {
            self.next();
        }
    }

    fn keyword(&mut self) -> String {
        let start = self.at;
        while self.peek().is_some_and(|c| c != '=' && !is_blank(c)) {
            self.next();
        }
        self.text[start..self.at].to_owned()
    }

    fn value(&mut self, keyword: &str) -> Result<String, ConninfoError> {
        let quoted = self.peek() == Some('\'');
        if quoted {
            self.next();
        }
        let mut value = String::new();
        while let Some(c) = self.peek() {
            if !quoted && is_blank(c) {
                return Ok(value);
            }
            self.next();
            match c {
                '\'' if quoted => return Ok(value),
                // A backslash escapes the next character, and is ignored at the end.
                '\\' => value.extend(self.next()),
                c => value.push(c),
            }
        }
        if quoted { Err(problem(format!("the quote of {keyword} is not closed"))) } else { Ok(value) }
    }
}

/// White space as in C's `isspace`.
fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}
