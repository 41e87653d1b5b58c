//! Why options are refused.

use pgbench::initialise::InitialiseError;
use pgbench::script::error::ScriptError;

use super::getopt::GetoptError;

/// Options that are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// In getopt's words: nothing but the program's name stands before them.
    Getopt(GetoptError),
    /// An error.
    Error(String),
    /// An error, and a hint to `--help`.
    ErrorWithHint(String),
    /// An error, and more about it.
    ErrorWithDetail(String, String),
}

impl From<ScriptError> for Refusal {
    fn from(error: ScriptError) -> Self {
        Self::Error(error.to_string())
    }
}

impl From<InitialiseError> for Refusal {
    fn from(error: InitialiseError) -> Self {
        Self::Error(error.to_string())
    }
}

/// Refuses with a message.
pub fn refuse<T>(message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Error(message.into()))
}
