//! Bodies of messages about statements and results, except rows.

use std::fmt;

/// The tag of a completed statement, such as `UPDATE 3`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CommandTag<'a> {
    text: &'a [u8],
}

impl<'a> CommandTag<'a> {
    #[inline]
    pub(super) fn read(body: &'a [u8]) -> Option<Self> {
        body.strip_suffix(&[0]).map(|text| Self { text })
    }

    /// Number of rows selected, inserted, updated, deleted or copied; 0 for other statements.
    #[must_use]
    pub fn rows(&self) -> u64 {
        let digits = self.text.iter().rev().take_while(|b| b.is_ascii_digit()).count();
        let number = &self.text[self.text.len() - digits..];
        number.iter().fold(0u64, |n, b| n.saturating_mul(10).saturating_add(u64::from(b - b'0')))
    }
}

impl fmt::Debug for CommandTag<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.text.escape_ascii())
    }
}

/// The columns of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fields<'a> {
    fields: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn read(body: &'a [u8]) -> Option<Self> {
        let (count, fields) = body.split_first_chunk::<2>()?;
        let mut rest = fields;
        for _ in 0..u16::from_be_bytes(*count) {
            (_, rest) = split_field(rest)?;
        }
        rest.is_empty().then_some(Self { fields })
    }

    /// The names of the columns in order.
    pub fn names(&self) -> impl Iterator<Item = &'a [u8]> + Clone + 'a {
        let mut rest = self.fields;
        std::iter::from_fn(move || {
            let (name, next) = split_field(rest)?;
            rest = next;
            Some(name)
        })
    }
}

/// The name of a field, and what follows its fixed part: table OID (4), column (2), type OID (4), size (2),
/// modifier (4), format (2).
fn split_field(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name, rest) = split_cstring(bytes)?;
    Some((name, rest.get(18..)?))
}

/// Splits at the first zero byte: the string before it, and the bytes after it.
pub(super) fn split_cstring(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&b| b == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// A message that cannot be read, or that is not allowed here.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ProtocolError {
    /// The message type does not exist or is not sent to clients.
    #[error("protocol violation: unknown message type {tag:#04x}; is this a PostgreSQL server?")]
    UnknownMessage {
        /// The message's first byte.
        tag: u8,
    },
    /// The length of a message is less than 4 or exceeds the limit.
    #[error("protocol violation: message '{tag}' claims {length_bytes} bytes (allowed: 4 to {limit_bytes})",
            tag = tag.escape_ascii())]
    MessageLength {
        /// The message's first byte.
        tag: u8,
        /// The length in the message.
        length_bytes: u32,
        /// The limit.
        limit_bytes: u32,
    },
    /// The body of a message does not match its type.
    #[error("protocol violation: malformed {message}")]
    Malformed {
        /// The message's name in the protocol's documentation.
        message: &'static str,
    },
    /// The message is not allowed in this state of the protocol.
    #[error("protocol violation: unexpected {message} while {doing}")]
    Unexpected {
        /// The message's name in the protocol's documentation.
        message: &'static str,
        /// The operation in progress.
        doing: &'static str,
    },
    /// The row does not have this column.
    #[error("the row has {columns} columns, column {column} was asked for")]
    NoColumn {
        /// Index, from 0.
        column: usize,
        /// Number of columns.
        columns: usize,
    },
    /// The value is NULL or does not have the expected type.
    #[error("column {column} is not a value of type {expected}")]
    ColumnType {
        /// Index, from 0.
        column: usize,
        /// The SQL name of the expected type.
        expected: &'static str,
    },
}
