//! Errors when a message of the server is read.

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
