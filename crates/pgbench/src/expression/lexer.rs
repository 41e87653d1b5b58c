//! Lexer of expressions. An expression ends with its line, unless a backslash precedes the newline.

use super::functions::SyntaxError;
use crate::effort;
use crate::value::{parse_double, parse_int};
use crate::variables::is_name_byte;

/// A token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Token<'a> {
    /// End of the line or of the text.
    End,
    /// An operator, a parenthesis or a comma.
    Sign(&'static str),
    /// A keyword.
    Keyword(Keyword),
    /// A colon and a name. The name may begin with a digit here, but such a variable cannot be defined.
    Variable(&'a [u8]),
    /// An integer.
    Int(i64),
    /// 2^63, which is valid only after a minus.
    IntMaxPlusOne,
    /// A number with a decimal point or an exponent.
    Double(f64),
    /// Any other word: a function name.
    Word(&'a [u8]),
}

macro_rules! keywords {
    ($($keyword:ident = $word:literal),+) => {
        /// Keywords, case-insensitive.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Keyword { $($keyword),+ }

        const KEYWORDS: &[(&str, Keyword)] = &[$(($word, Keyword::$keyword)),+];
    };
}

keywords! {
    And = "and", Or = "or", Not = "not", Is = "is", IsNull = "isnull", NotNull = "notnull",
    Case = "case", When = "when", Then = "then", Else = "else", End = "end",
    Null = "null", True = "true", False = "false"
}

/// Longer signs precede their prefixes. `!=` is an alias of `<>`.
const SIGNS: [&str; 21] = [
    "<>", "!=", "<=", ">=", "<<", ">>", "<", ">", "=", "+", "-", "*", "/", "%", "|", "&", "#", "~", "(", ")",
    ",",
];

/// Reads tokens from a position in a script.
#[derive(Debug)]
pub struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    ended_by_newline: bool,
}

impl<'a> Lexer<'a> {
    /// Starts at the byte `at` of `text`.
    pub fn new(text: &'a [u8], at: usize) -> Self {
        Self { text, at, ended_by_newline: false }
    }

    /// The position after the last token.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Reads the next token. There is none after [`Token::End`].
    pub fn read(&mut self) -> Result<Token<'a>, SyntaxError> {
        if self.ended_by_newline {
            return Ok(Token::End);
        }
        self.skip_space();
        let rest = &self.text[self.at..];
        match rest {
            [] => Ok(Token::End),
            [b'\n', ..] => {
                self.at += 1;
                self.ended_by_newline = true;
                Ok(Token::End)
            }
            [b':', next, ..] if is_name_byte(*next) => {
                self.at += 1;
                Ok(Token::Variable(self.take(is_name_byte)))
            }
            [b'0'..=b'9', ..] | [b'.', b'0'..=b'9', ..] => self.number(),
            [byte, ..] if is_name_byte(*byte) => Ok(word(self.take(is_name_byte))),
            _ => self.sign(rest),
        }
    }

    /// An error at the last byte of the last token.
    pub fn error(&self, message: &'static str, detail: Option<&[u8]>) -> SyntaxError {
        let detail = detail.map(|detail| String::from_utf8_lossy(detail).into_owned());
        SyntaxError { message, detail, at: self.at.saturating_sub(1), line_end: self.at }
    }

    /// Skips white space and line continuations.
    fn skip_space(&mut self) {
        loop {
            effort::spend(1);
            match &self.text[self.at..] {
                [b' ' | b'\t' | b'\r' | 0x0b | 0x0c, ..] => self.at += 1,
                [b'\\', b'\n', ..] => self.at += 2,
                [b'\\', b'\r', b'\n', ..] => self.at += 3,
                _ => return,
            }
        }
    }

    fn take(&mut self, wanted: fn(u8) -> bool) -> &'a [u8] {
        let start = self.at;
        self.at += self.text[start..].iter().take_while(|&&byte| wanted(byte)).count();
        effort::spend(self.at - start);
        &self.text[start..self.at]
    }

    fn sign(&mut self, rest: &'a [u8]) -> Result<Token<'a>, SyntaxError> {
        if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign.as_bytes())) {
            self.at += sign.len();
            return Ok(Token::Sign(if sign == "!=" { "<>" } else { sign }));
        }
        self.at += 1;
        Err(self.error("unexpected character", rest.get(..1)))
    }

    /// Reads a number; with a decimal point or an exponent it is a double. An `e` without digits is not an
    /// exponent.
    fn number(&mut self) -> Result<Token<'a>, SyntaxError> {
        let start = self.at;
        let digit = |byte: u8| byte.is_ascii_digit();
        self.take(digit);
        let mut double = false;
        if self.text.get(self.at) == Some(&b'.') {
            double = true;
            self.at += 1;
            self.take(digit);
        }
        let exponent = match &self.text[self.at..] {
            [b'e' | b'E', b'0'..=b'9', ..] => 1,
            [b'e' | b'E', b'+' | b'-', b'0'..=b'9', ..] => 2,
            _ => 0,
        };
        if exponent > 0 {
            double = true;
            self.at += exponent;
            self.take(digit);
        }
        let text = &self.text[start..self.at];
        if double {
            return parse_double(text)
                .map(Token::Double)
                .ok_or_else(|| self.error("double constant overflow", Some(text)));
        }
        if text == b"9223372036854775808" {
            return Ok(Token::IntMaxPlusOne);
        }
        parse_int(text).map(Token::Int).map_err(|_| self.error("bigint constant overflow", Some(text)))
    }
}

fn word(text: &[u8]) -> Token<'_> {
    let keyword = KEYWORDS.iter().find(|(word, _)| text.eq_ignore_ascii_case(word.as_bytes()));
    keyword.map_or(Token::Word(text), |&(_, keyword)| Token::Keyword(keyword))
}
