//! What a load can fail with, and where.

use serde_json::{Value, json};

use pgwire::SqlState;
use reactor::{Error, ServerError};

/// The part of a load in which it failed, as `docs/reference/engine-protocol.md` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// The specification is wrong.
    Specification,
    /// A connection could not be made.
    Connect,
    /// The database is not fit to be loaded, or a table could not be created.
    Create,
    /// A script could not make its data.
    Prepare,
    /// Rows could not be copied.
    Copy,
    /// An index or routine could not be created.
    Index,
    /// Visibility maps or statistics could not be made, or the mark not be written.
    Analyze,
}

/// Why a load failed: one line for a person.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct LoadError {
    /// Where.
    pub stage: Stage,
    /// What failed, on what, and what to do.
    pub message: String,
    /// The server's code, where it gave one.
    pub sqlstate: Option<SqlState>,
    /// What the server refused, and its words.
    pub refused: Option<Box<Refused>>,
    /// Why there is no connection, where that is why.
    pub unconnected: Option<Box<Error>>,
}

/// A statement that the server refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// It.
    pub statement: String,
    /// Why.
    pub error: ServerError,
}

impl LoadError {
    /// A failure that is not the server's.
    pub fn new(stage: Stage, message: impl Into<String>) -> Self {
        Self { stage, message: message.into(), sqlstate: None, refused: None, unconnected: None }
    }

    /// A failure of a connection while `doing` something, such as "copy into stock".
    pub fn from_io(stage: Stage, doing: &str, error: &Error) -> Self {
        let sqlstate = error.sqlstate();
        let code = sqlstate.as_ref().map(SqlState::as_str);
        let message = match code {
            Some("53100") => format!(
                "cannot {doing}: the server's disk is full ({error}); free space or load at a smaller scale"
            ),
            _ => format!("cannot {doing}: {error}"),
        };
        Self { stage, message, sqlstate, refused: None, unconnected: None }
    }

    /// The same of a certain statement.
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

    /// Whether the server ended a statement because it was asked to.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.sqlstate == SqlState::from_bytes(b"57014")
    }

    /// The event `failed`.
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
