//! What cannot be written as a message of the protocol.

/// A message that cannot be written.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EncodeError {
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
}
