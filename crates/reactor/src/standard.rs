//! Standard streams, which may have no reader.

#![allow(unsafe_code)] // Signals have no safe interface.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufReader, LineWriter, Write};
use std::os::fd::AsFd;

use rustix::stdio::{dup2_stdin, dup2_stdout};

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

/// Takes standard input and output for the messages of this process.
///
/// Scripts, their libraries and commands, which know the streams by their numbers, then have an empty input, and
/// their output goes to standard error.
pub fn take_streams() -> io::Result<(BufReader<File>, LineWriter<File>)> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let output = io::stdout().as_fd().try_clone_to_owned()?;
    dup2_stdin(File::open("/dev/null")?)?;
    dup2_stdout(io::stderr())?;
    Ok((BufReader::new(File::from(input)), LineWriter::new(File::from(output))))
}

/// Restores the default action of SIGPIPE: the process ends when its output has no reader, as other programs
/// do.
///
/// Rust ignores SIGPIPE by default. Sockets to servers never raise it.
pub fn end_with_reader() {
    // SAFETY: sets the default action; no handler of this process runs.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
