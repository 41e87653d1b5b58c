//! What is wrong with a connection string or with a variable of the environment. No message holds a password.

/// A connection string that cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConninfoError {
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

/// A connection string that cannot be read.
pub(super) fn problem(text: impl Into<String>) -> ConninfoError {
    ConninfoError::Conninfo { problem: text.into() }
}
