//! What can go wrong between us and a server.

use std::io;

use super::{Attempts, Nanos};
pub use pgwire::backend::ServerError;
use pgwire::{SqlState, WireError};

/// Everything that a connection can fail with.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server reported an error. The connection lives on, unless [`Error::is_fatal`].
    #[error("{0}")]
    Server(Box<ServerError>),
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The server broke the protocol, or a message cannot be written; the connection is of no more use.
    #[error("{0}")]
    Wire(#[from] WireError),
    /// The server did what the protocol allows, but beyond our limits; the connection is of no more use.
    #[error("the server exceeds a limit of ours: {0}")]
    Limit(&'static str),
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried, as the rest of "cannot …".
        action: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The server could not be reached.
    #[error("{0}")]
    Connect(String),
    /// No server let us in.
    #[error("{0}")]
    Unconnected(Attempts),
    /// The server was silent for too long.
    #[error(
        "no answer from the server within {} s while {waited_for}; check that it runs and that the network passes its answers",
        limit.as_s()
    )]
    Timeout {
        /// What the answer was to.
        waited_for: &'static str,
        /// How long it was waited for.
        limit: Nanos,
    },
    /// The driver gave the transaction up.
    #[error("given up by the driver, because its slice could not be drained in time")]
    Abandoned,
    /// The workload met something that it cannot go on with, e.g. tables that do not fit its specification.
    #[error("{0}")]
    Workload(String),
    /// The fake clock stands still: every future waits and no deadline is set.
    #[error("every future waits for something that nobody will do")]
    Stalled,
}

impl Error {
    /// A failed system call.
    pub(crate) fn system(action: impl Into<String>, errno: rustix::io::Errno) -> Self {
        Self::System { action: action.into(), source: errno.into() }
    }

    /// The SQLSTATE, where the server gave one.
    #[must_use]
    pub fn sqlstate(&self) -> Option<SqlState> {
        match self {
            Self::Server(error) => Some(error.sqlstate),
            Self::Wire(error) => error.sqlstate(),
            Self::Unconnected(attempts) => attempts.refusal()?.sqlstate(),
            _ => None,
        }
    }

    /// Serialization failures and deadlocks: the same transaction may succeed when tried again.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.sqlstate().is_some_and(SqlState::is_retryable)
    }

    /// Whether the connection is of no more use.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        match self {
            Self::Server(error) => error.severity != "ERROR",
            Self::Workload(_) => false,
            _ => true,
        }
    }
}
