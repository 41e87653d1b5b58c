//! Standard streams, which may have no reader.

#![allow(unsafe_code)] // Neither signals nor standard streams have a safe interface.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufReader, LineWriter, Write};
use std::os::fd::{AsFd, AsRawFd};

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
    let empty = File::open("/dev/null")?;
    for (from, to) in [(empty.as_raw_fd(), libc::STDIN_FILENO), (libc::STDERR_FILENO, libc::STDOUT_FILENO)] {
        // SAFETY: both descriptors are open; standard streams have no owner in Rust.
        if unsafe { libc::dup2(from, to) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
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
