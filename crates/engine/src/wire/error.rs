//! What can go wrong between a connection string and a ready session, and in reading what a server sends.
//!
//! Messages are one line, say what failed, on what and what to do, and never hold a password.

/// Every error of the wire layer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    // ---- reading the server's messages
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

    // ---- writing our messages
    /// A string of ours holds a zero byte, which the protocol cannot carry.
    #[error("{what} holds a zero byte, which PostgreSQL cannot take")]
    ZeroByte {
        /// What the string is.
        what: &'static str,
    },
    /// A message of ours would be longer than the protocol can carry.
    #[error("{what} is too long for one message of the protocol")]
    TooLong {
        /// What is too long.
        what: &'static str,
    },

    // ---- connection strings
    /// The connection string cannot be read.
    #[error("connection string: {problem}")]
    Conninfo {
        /// What is wrong, without any value that may be a password.
        problem: String,
    },
    /// The connection string has a keyword that libpq does not have.
    #[error("connection string: unknown keyword \"{keyword}\"")]
    UnknownKeyword {
        /// As written.
        keyword: String,
    },
    /// A keyword or variable that libpq has and we do not, with a value that we would have to honour.
    #[error("{setting}: {why}")]
    Unsupported {
        /// The keyword or variable.
        setting: String,
        /// Why not, and what to do instead.
        why: &'static str,
    },
    /// A keyword's value is not one of those allowed.
    #[error("{setting}: invalid value; expected {expected}")]
    InvalidValue {
        /// The keyword or variable.
        setting: String,
        /// What is allowed.
        expected: &'static str,
    },
}
