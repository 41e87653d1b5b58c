//! Errors when a message is encoded.

/// A message that cannot be encoded.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EncodeError {
    /// A string contains a zero byte, which the protocol does not allow.
    #[error("{what} holds a zero byte, which PostgreSQL cannot take")]
    ZeroByte {
        /// Name of the string.
        what: &'static str,
    },
    /// A message exceeds the maximum length of the protocol.
    #[error("{what} is too long for one message of the protocol")]
    TooLong {
        /// Name of the part that is too long.
        what: &'static str,
    },
}
