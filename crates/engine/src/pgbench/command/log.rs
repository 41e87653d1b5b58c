//! Messages on standard error, as PostgreSQL's programs write them.

use std::io;

use crate::io::Error;

/// Something failed, and that has been said.
#[derive(Clone, Copy, Debug)]
pub struct Said;

/// Whose messages they are.
#[derive(Clone, Debug)]
pub struct Log {
    /// The program's name, as it was called.
    pub program: String,
}

impl Log {
    /// News.
    pub fn info(&self, message: &str) {
        eprintln!("{}: {message}", self.program);
    }

    /// An error.
    pub fn error(&self, message: &str) {
        self.info(&format!("error: {message}"));
    }

    /// Something odd.
    pub fn warning(&self, message: &str) {
        self.info(&format!("warning: {message}"));
    }

    /// More about the error before.
    pub fn detail(&self, message: &str) {
        self.info(&format!("detail: {message}"));
    }

    /// What to do about the error before.
    pub fn hint(&self, message: &str) {
        self.info(&format!("hint: {message}"));
    }
}

/// An error of the server's in several lines, as libpq has it, though without the line of the statement.
#[must_use]
pub fn server_text(error: &Error) -> String {
    let Error::Server(error) = error else { return error.to_string() };
    let mut lines = vec![format!("{}:  {}", error.severity, error.message)];
    for (name, more) in [("DETAIL", &error.detail), ("HINT", &error.hint)] {
        if let Some(more) = more {
            lines.push(format!("{name}:  {more}"));
        }
    }
    lines.join("\n")
}

/// An error of the operating system's, as C's strerror has it.
#[must_use]
pub fn system_text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
