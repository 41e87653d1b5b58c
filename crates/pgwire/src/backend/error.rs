//! What is wrong with a message of the server's.

/// A message that cannot be read, or that does not belong here.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ProtocolError {
    /// The server sent a message type that the protocol does not have, or that a client never gets.
    #[error("protocol violation: unknown message type {tag:#04x}; is this a PostgreSQL server?")]
    UnknownMessage {
        /// The message's first byte.
        tag: u8,
    },
    /// A message's length field is under its own four bytes or over the limit.
    #[error("protocol violation: message '{tag}' claims {length_bytes} bytes (allowed: 4 to {limit_bytes})",
            tag = tag.escape_ascii())]
    MessageLength {
        /// The message's first byte.
        tag: u8,
        /// The length that it claims.
        length_bytes: u32,
        /// The longest that is allowed here.
        limit_bytes: u32,
    },
    /// The body of a message does not have the shape that its type prescribes.
    #[error("protocol violation: malformed {message}")]
    Malformed {
        /// The message's name in the protocol's documentation.
        message: &'static str,
    },
    /// A message that may not come at this point of the conversation.
    #[error("protocol violation: unexpected {message} while {doing}")]
    Unexpected {
        /// The message's name in the protocol's documentation.
        message: &'static str,
        /// What we were doing.
        doing: &'static str,
    },
    /// A row has no such column.
    #[error("the row has {columns} columns, column {column} was asked for")]
    NoColumn {
        /// Index, from 0.
        column: usize,
        /// Number of columns.
        columns: usize,
    },
    /// A column's value is NULL or not of the type asked for.
    #[error("column {column} is not a value of type {expected}")]
    ColumnType {
        /// Index, from 0.
        column: usize,
        /// The SQL name of the type asked for.
        expected: &'static str,
    },
}
