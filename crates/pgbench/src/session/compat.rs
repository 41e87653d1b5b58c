//! What pgbench does in another way than an engine that is driven by others.

use std::fmt;

use reactor::{Error, Shared};

/// Gets why a statement could not be prepared, and its text.
pub type OnUnprepared = Box<dyn Fn(&Error, &[u8]) + Send + Sync>;

/// The ways of a program. Those of an engine are the default.
#[derive(Default)]
pub struct Compat {
    /// Which streams commands of the shell get: of an engine none, as its input and output are others'.
    pub shell: Shared,
    /// Who is told of a statement that could not be prepared, and is executed all the same. With none, that is the error
    /// of the command.
    pub on_unprepared: Option<OnUnprepared>,
}

impl fmt::Debug for Compat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compat").field("shell", &self.shell).finish_non_exhaustive()
    }
}
