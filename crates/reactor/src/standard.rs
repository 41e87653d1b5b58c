//! Standard output and standard error, which may have no reader.

#![allow(unsafe_code)] // Signals have no safe interface.

use std::fmt::Display;
use std::io::{self, Write};

/// Writes to standard error and flushes. Errors are ignored.
pub fn tell(text: impl Display) {
    let _ = io::stderr().lock().write_all(text.to_string().as_bytes());
}

/// Writes to standard output and flushes.
pub fn print(text: impl Display) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.to_string().as_bytes())?;
    output.flush()
}

/// Restores the default action of SIGPIPE: the process ends when its output has no reader, as other programs
/// do.
///
/// Rust ignores SIGPIPE by default. Sockets to servers never raise it.
pub fn end_with_reader() {
    // SAFETY: sets the default action; no handler of this process runs.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
