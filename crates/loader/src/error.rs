//! Errors of a load, with their stage.

use serde_json::{Value, json};

use pgwire::SqlState;
use reactor::{Error, ServerError};

/// Stage of a failed load, as named in `docs/reference/engine-protocol.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// The specification is invalid.
    Specification,
    /// A connection failed.
    Connect,
    /// The database is not suitable, or a table could not be created.
    Create,
    /// The prepare command of a script failed.
    Prepare,
    /// Rows could not be copied.
    Copy,
    /// An index or routine could not be created.
    Index,
    /// Visibility maps or statistics could not be created, or the ownership marker could not be written.
    Analyze,
}

/// Reason why a load failed, one line for the user.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct LoadError {
    /// Stage of the failure.
    pub stage: Stage,
    /// What failed, the object, and the remedy.
    pub message: String,
    /// SQLSTATE from the server, if any.
    pub sqlstate: Option<SqlState>,
    /// The rejected statement and its error.
    pub refused: Option<Box<Refused>>,
    /// The error of connecting, if that is the reason.
    pub unconnected: Option<Box<Error>>,
}

/// A statement that the server rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The statement.
    pub statement: String,
    /// The error.
    pub error: ServerError,
}

impl LoadError {
    /// A failure other than an error of the server.
    pub fn new(stage: Stage, message: impl Into<String>) -> Self {
        Self { stage, message: message.into(), sqlstate: None, refused: None, unconnected: None }
    }

    /// A failure of a connection while `doing` something, such as "copy into stock".
    #[must_use]
    pub fn from_io(stage: Stage, doing: &str, error: &Error) -> Self {
        let sqlstate = error.sqlstate();
        let message = match sqlstate {
            Some(SqlState::DISK_FULL) => format!(
                "cannot {doing}: the server's disk is full ({error}); free space or load at a smaller scale"
            ),
            _ => format!("cannot {doing}: {error}"),
        };
        Self { stage, message, sqlstate, refused: None, unconnected: None }
    }

    /// A failure of a statement.
    #[must_use]
    pub fn from_statement(stage: Stage, doing: &str, statement: &str, error: &Error) -> Self {
        let refused = match error {
            Error::Server(error) => {
                let (statement, error) = (statement.to_owned(), error.as_ref().clone());
                Some(Box::new(Refused { statement, error }))
            }
            _ => None,
        };
        Self { refused, ..Self::from_io(stage, doing, error) }
    }

    /// Whether the server canceled a statement on request.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.sqlstate == Some(SqlState::QUERY_CANCELED)
    }

    /// Creates the `failed` event.
    #[must_use]
    pub fn event(&self) -> Value {
        json!({
            "event": "failed",
            "stage": self.stage,
            "target": Value::Null,
            "message": self.message,
            "sqlstate": self.sqlstate.map(|code| code.to_string()),
        })
    }
}
