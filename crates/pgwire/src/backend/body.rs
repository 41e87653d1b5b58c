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

    /// The tag as the server wrote it.
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.text
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

/// Formats of COPY, from CopyInResponse or CopyOutResponse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyResponse {
    /// Whether the whole COPY is binary.
    pub binary: bool,
    /// Number of columns.
    pub columns: u16,
}

impl CopyResponse {
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        let (&[binary, a, b], formats) = body.split_first_chunk::<3>()?;
        let columns = u16::from_be_bytes([a, b]);
        (binary <= 1 && formats.len() == 2 * usize::from(columns))
            .then_some(Self { binary: binary == 1, columns })
    }
}

/// Object identifiers of types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oids<'a> {
    oids: &'a [u8],
}

impl<'a> Oids<'a> {
    pub(super) fn read(body: &'a [u8]) -> Option<Self> {
        let (count, oids) = body.split_first_chunk::<2>()?;
        (oids.len() == 4 * usize::from(u16::from_be_bytes(*count))).then_some(Self { oids })
    }

    /// The identifiers in order.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + 'a {
        self.oids.chunks_exact(4).map(|oid| u32::from_be_bytes([oid[0], oid[1], oid[2], oid[3]]))
    }
}

/// One column of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// The OID of its type.
    pub type_oid: u32,
    /// The type's modifier, −1 for none.
    pub type_modifier: i32,
    /// Whether its values are binary; a description before Bind always says no.
    pub binary: bool,
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

    /// The columns in order.
    pub fn iter(&self) -> impl Iterator<Item = Field<'a>> + Clone + 'a {
        let mut rest = self.fields;
        std::iter::from_fn(move || {
            let (field, next) = split_field(rest)?;
            rest = next;
            Some(field)
        })
    }
}

/// A field's fixed part: table OID (4), column (2), type OID (4), size (2), modifier (4), format (2).
fn split_field(bytes: &[u8]) -> Option<(Field<'_>, &[u8])> {
    let (name, rest) = split_cstring(bytes)?;
    let (&[_, _, _, _, _, _, t0, t1, t2, t3, _, _, m0, m1, m2, m3, f0, f1], rest) =
        rest.split_first_chunk::<18>()?;
    let field = Field {
        name,
        type_oid: u32::from_be_bytes([t0, t1, t2, t3]),
        type_modifier: i32::from_be_bytes([m0, m1, m2, m3]),
        binary: [f0, f1] == [0, 1],
    };
    Some((field, rest))
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
