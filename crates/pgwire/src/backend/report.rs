//! Errors and notices: as they lie in the buffer, and to keep.

use std::borrow::Cow;
use std::fmt;

use super::super::SqlState;
use super::body::split_cstring;

/// Bytes of a field that are kept. A server's own texts take a few kilobytes; a RAISE may send megabytes.
const FIELD_BYTES_MAX: usize = 64 << 10;
/// Bytes of the line that says all of an error, which goes into events and logs.
const LINE_BYTES_MAX: usize = 4000;

/// The fields of an error or notice; each is looked up when asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ErrorFields<'a> {
    fields: &'a [u8],
}

impl<'a> ErrorFields<'a> {
    /// Checks that the fields are strings with a code before each and a zero at the end.
    pub(super) fn read(body: &'a [u8]) -> Option<Self> {
        let mut rest = body;
        loop {
            match rest {
                [0] => return Some(Self { fields: body }),
                [_, value @ ..] => (_, rest) = split_cstring(value)?,
                [] => return None,
            }
        }
    }

    /// A field by its code in the protocol, such as `b'M'`.
    #[must_use]
    pub fn get(&self, code: u8) -> Option<&'a [u8]> {
        let mut rest = self.fields;
        while let [found, value @ ..] = rest {
            let (text, next) = split_cstring(value)?;
            if *found == code {
                return (code != 0).then_some(text);
            }
            rest = next;
        }
        None
    }

    /// The code of the error; [`SqlState::UNKNOWN`] if the server gave none.
    #[must_use]
    pub fn sqlstate(&self) -> SqlState {
        self.get(b'C').and_then(SqlState::from_bytes).unwrap_or(SqlState::UNKNOWN)
    }

    /// ERROR, FATAL, WARNING and so on; untranslated where the server is 9.6 or newer.
    #[must_use]
    pub fn severity(&self) -> Cow<'a, str> {
        self.text(b'V').or_else(|| self.text(b'S')).unwrap_or_default()
    }

    /// The error in one line.
    #[must_use]
    pub fn message(&self) -> Cow<'a, str> {
        self.text(b'M').unwrap_or_default()
    }

    /// More about it.
    #[must_use]
    pub fn detail(&self) -> Option<Cow<'a, str>> {
        self.text(b'D')
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<Cow<'a, str>> {
        self.text(b'H')
    }

    /// The call stack of the server's functions.
    #[must_use]
    pub fn context(&self) -> Option<Cow<'a, str>> {
        self.text(b'W')
    }

    /// The fields that outlive the buffer, each shortened beyond 64 KiB.
    #[must_use]
    pub fn to_owned(&self) -> ServerError {
        ServerError {
            sqlstate: self.sqlstate(),
            severity: kept(&self.severity()),
            message: kept(&self.message()),
            detail: self.detail().map(|text| kept(&text)),
            hint: self.hint().map(|text| kept(&text)),
            position: self.number(b'P'),
            internal_query: self.text(b'q').map(|text| kept(&text)),
            internal_position: self.number(b'p'),
            context: self.context().map(|text| kept(&text)),
        }
    }

    fn number(&self, code: u8) -> Option<u32> {
        std::str::from_utf8(self.get(code)?).ok()?.parse().ok()
    }

    fn text(&self, code: u8) -> Option<Cow<'a, str>> {
        self.get(code).map(String::from_utf8_lossy)
    }
}

impl fmt::Debug for ErrorFields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.severity(), self.sqlstate(), self.message())
    }
}

/// An error of the server's, to keep.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.line())]
pub struct ServerError {
    /// The code.
    pub sqlstate: SqlState,
    /// ERROR, FATAL or PANIC.
    pub severity: String,
    /// The error in one line.
    pub message: String,
    /// More about it.
    pub detail: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
    /// The character of the statement that it is about, from 1.
    pub position: Option<u32>,
    /// The statement that the server made itself and failed in.
    pub internal_query: Option<String>,
    /// The character of that statement, from 1.
    pub internal_position: Option<u32>,
    /// The call stack of the server's functions.
    pub context: Option<String>,
}

impl ServerError {
    /// Message, detail, hint and code in one line.
    fn line(&self) -> String {
        let parts = [Some(&self.message), self.detail.as_ref(), self.hint.as_ref()];
        let text: Vec<_> = parts.into_iter().flatten().map(|part| one_line(part)).collect();
        format!("{} (SQLSTATE {})", shortened(&text.join("; "), LINE_BYTES_MAX), self.sqlstate)
    }
}

fn kept(text: &str) -> String {
    shortened(text, FIELD_BYTES_MAX).into_owned()
}

/// The beginning of a text that is too long, and how much is left out.
fn shortened(text: &str, bytes_max: usize) -> Cow<'_, str> {
    if text.len() <= bytes_max {
        return text.into();
    }
    let end = (0..=bytes_max).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    format!("{}… ({} more bytes)", &text[..end], text.len() - end).into()
}

/// A server's text, made harmless to a terminal: no line breaks, no escape sequences.
pub(super) fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}
