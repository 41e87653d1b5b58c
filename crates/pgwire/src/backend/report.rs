//! Errors and notices: borrowed from the buffer, and owned.

use std::borrow::Cow;
use std::fmt;

use super::super::SqlState;
use super::body::split_cstring;

/// Maximum bytes of an owned field. Texts of the server take a few kilobytes; a RAISE may send megabytes.
const FIELD_BYTES_MAX: usize = 64 << 10;
/// Maximum bytes of the line that summarizes an error in events and logs.
const LINE_BYTES_MAX: usize = 4000;

/// Fields of an error or notice. Each is searched when it is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ErrorFields<'a> {
    fields: &'a [u8],
}

impl<'a> ErrorFields<'a> {
    /// Checks that the body is a list of codes and zero-terminated strings.
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

    /// The field of a protocol code, such as `b'M'`.
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

    /// The SQLSTATE; [`SqlState::UNKNOWN`] if missing.
    pub fn sqlstate(&self) -> SqlState {
        self.get(b'C').and_then(SqlState::from_bytes).unwrap_or(SqlState::UNKNOWN)
    }

    /// Copies the fields, each truncated at 64 KiB.
    #[must_use]
    pub fn to_owned(&self) -> ServerError {
        ServerError {
            sqlstate: self.sqlstate(),
            // ERROR, FATAL, WARNING and so on; not localized since version 9.6.
            severity: self.kept(b'V').or_else(|| self.kept(b'S')).unwrap_or_default(),
            message: self.kept(b'M').unwrap_or_default(),
            detail: self.kept(b'D'),
            hint: self.kept(b'H'),
            position: self.number(b'P'),
            internal_query: self.kept(b'q'),
            internal_position: self.number(b'p'),
            context: self.kept(b'W'),
        }
    }

    fn number(&self, code: u8) -> Option<u32> {
        std::str::from_utf8(self.get(code)?).ok()?.parse().ok()
    }

    fn kept(&self, code: u8) -> Option<String> {
        Some(shortened(&String::from_utf8_lossy(self.get(code)?), FIELD_BYTES_MAX).into_owned())
    }
}

impl fmt::Debug for ErrorFields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServerError { severity, sqlstate, message, .. } = self.to_owned();
        write!(f, "{severity} {sqlstate}: {message}")
    }
}

/// An error of the server, owned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.line())]
pub struct ServerError {
    /// The SQLSTATE.
    pub sqlstate: SqlState,
    /// ERROR, FATAL or PANIC.
    pub severity: String,
    /// The primary message.
    pub message: String,
    /// The detail message.
    pub detail: Option<String>,
    /// The hint.
    pub hint: Option<String>,
    /// The error position as a character of the statement, from 1.
    pub position: Option<u32>,
    /// The internally generated statement that failed.
    pub internal_query: Option<String>,
    /// The error position in the internal statement, from 1.
    pub internal_position: Option<u32>,
    /// The context: the call stack of functions in the server.
    pub context: Option<String>,
}

impl ServerError {
    /// Message, detail, hint and SQLSTATE in one line.
    fn line(&self) -> String {
        let parts = [Some(&self.message), self.detail.as_ref(), self.hint.as_ref()];
        let text: Vec<_> = parts.into_iter().flatten().map(|part| one_line(part)).collect();
        format!("{} (SQLSTATE {})", shortened(&text.join("; "), LINE_BYTES_MAX), self.sqlstate)
    }
}

/// Truncates a text, and appends the number of omitted bytes.
fn shortened(text: &str, bytes_max: usize) -> Cow<'_, str> {
    if text.len() <= bytes_max {
        return text.into();
    }
    let end = (0..=bytes_max).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    format!("{}… ({} more bytes)", &text[..end], text.len() - end).into()
}

/// Replaces line breaks and escape sequences of a text, so that it is safe for a terminal.
pub(super) fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}
