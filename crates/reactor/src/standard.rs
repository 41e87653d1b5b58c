//! Standard output and standard error, to which nobody need be listening.

#![allow(unsafe_code)] // Signals have no safe interface.

use std::fmt::Display;
use std::io::{self, Write};

/// Writes to standard error, at once. Where that cannot be written there is nobody to be told.
pub fn tell(text: impl Display) {
    let _ = io::stderr().lock().write_all(text.to_string().as_bytes());
}

/// Writes to standard output, at once.
pub fn print(text: impl Display) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.to_string().as_bytes())?;
    output.flush()
}

/// Has SIGPIPE end the process as it ends other programs whose output nobody reads on. Rust ignores it by default. What we
/// send to servers never raises it.
pub fn end_with_reader() {
    // SAFETY: sets a default; no handler of ours runs.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
