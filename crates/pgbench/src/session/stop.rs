//! Why a transaction of a script ended before its end.

use crate::run::Abort;
use reactor::Error;

/// Why a transaction ended before its end.
#[derive(Debug)]
pub enum Stop {
    /// The server, or the connection to it.
    Session(Error),
    /// The script: its client does not go on.
    Script(Abort),
    /// The same at its end: it has left a transaction open. pgbench counts that one as done.
    LeftOpen(Abort),
}

impl<E: Into<Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Session(error.into())
    }
}

impl From<Abort> for Stop {
    fn from(abort: Abort) -> Self {
        Self::Script(abort)
    }
}
