//! Why options are refused.

/// Options that are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// In getopt's words: nothing but the program's name stands before them.
    Getopt(String),
    /// An error.
    Error(String),
    /// An error, and a hint to `--help`.
    ErrorWithHint(String),
    /// An error, and more about it.
    ErrorWithDetail(String, String),
}

impl From<String> for Refusal {
    fn from(message: String) -> Self {
        Self::Error(message)
    }
}

/// Refuses with a message.
pub fn refuse<T>(message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Error(message.into()))
}
