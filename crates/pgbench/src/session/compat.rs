//! Differences between the pgbench program and the engine.

use std::fmt;

use reactor::{Error, Shared};

/// Handler of a statement that could not be prepared: the error and the text.
pub type OnUnprepared = Box<dyn Fn(&Error, &[u8]) + Send + Sync>;

/// Behavior of a program. The default is that of the engine.
#[derive(Default)]
pub struct Compat {
    /// Standard streams of shell commands. The engine shares none, because it uses its own for the protocol.
    pub shell: Shared,
    /// Handler of a statement that could not be prepared and is executed anyway. Without it, this is an error
    /// of the command.
    pub on_unprepared: Option<OnUnprepared>,
}

impl fmt::Debug for Compat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compat").field("shell", &self.shell).finish_non_exhaustive()
    }
}
