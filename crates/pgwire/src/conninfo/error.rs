//! Errors of connection strings and environment variables. No message contains a password.

/// An invalid connection string.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConninfoError {
    /// The connection string cannot be parsed.
    #[error("connection string: {problem}")]
    Conninfo {
        /// The problem, without values that may be passwords.
        problem: String,
    },
    /// A keyword is not one of libpq's.
    #[error("connection string: unknown keyword \"{keyword}\"")]
    UnknownKeyword {
        /// As given.
        keyword: String,
    },
    /// An unsupported keyword or variable of libpq, with a value that has an effect.
    #[error("{setting}: {why}")]
    Unsupported {
        /// The keyword or variable.
        setting: String,
        /// The reason, and the alternative.
        why: &'static str,
    },
    /// A keyword's value is not one of those allowed.
    #[error("{setting}: invalid value; expected {expected}")]
    InvalidValue {
        /// The keyword or variable.
        setting: String,
        /// The allowed values.
        expected: &'static str,
    },
}

/// A parse error of a connection string.
pub(super) fn problem(text: impl Into<String>) -> ConninfoError {
    ConninfoError::Conninfo { problem: text.into() }
}
