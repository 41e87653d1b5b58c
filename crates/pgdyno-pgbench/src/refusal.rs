//! Usage errors.

use pgbench::initialise::InitialiseError;
use pgbench::script::error::ScriptError;

use super::getopt::GetoptError;

/// A usage error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// An error of getopt, printed after the program's name.
    Getopt(GetoptError),
    /// An error.
    Error(String),
    /// An error with a hint to `--help`.
    ErrorWithHint(String),
    /// An error with a detail.
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

/// Returns a usage error with a message.
pub fn refuse<T>(message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Error(message.into()))
}
