//! Reasons why a transaction of a script is aborted.

use crate::run::Abort;
use reactor::Error;

/// Reason why a transaction is aborted.
#[derive(Debug)]
pub enum Stop {
    /// An error of the server or the connection.
    Session(Error),
    /// An error of the script. Its client does not continue.
    Script(Abort),
    /// A transaction is open at the end of the script. pgbench counts it as completed.
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
