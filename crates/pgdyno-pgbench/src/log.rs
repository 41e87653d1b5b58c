//! Messages on standard error, as PostgreSQL's programs write them.

use super::attempt::attempts_text;
use super::libpq::{self, system_text};
use reactor::{self as standard, Error, tell};

/// Something failed, and that has been reported.
#[derive(Clone, Copy, Debug)]
pub struct Reported;

/// Whose messages they are.
#[derive(Clone, Debug)]
pub struct Log {
    /// The program's name, as it was called.
    pub program: String,
    /// Whether what is for finding faults is told as well.
    pub debug: bool,
}

impl Log {
    /// Writes to standard output. That it cannot be written has been reported.
    pub fn print(&self, text: &str) -> Result<(), Reported> {
        standard::print(text).map_err(|error| {
            self.error(&format!("could not write to standard output: {}", system_text(&error)));
            Reported
        })
    }

    /// News.
    pub fn info(&self, message: &str) {
        tell(format_args!("{}: {message}\n", self.program));
    }

    /// What is for finding faults; the text is made only if it is wanted.
    pub fn debug(&self, message: impl FnOnce() -> String) {
        if self.debug {
            self.info(&message());
        }
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

/// An error; one of the server's in several lines, as libpq has it where it knows of no statement.
#[must_use]
pub fn server_text(error: &Error) -> String {
    statement_text(error, None)
}

/// An error; one of the server's in several lines, as libpq has it, with the place in the statement.
#[must_use]
pub fn statement_text(error: &Error, statement: Option<&str>) -> String {
    match error {
        Error::Server(error) => libpq::error_text(error, statement),
        Error::Unconnected(attempts) => attempts_text(attempts),
        other => other.to_string(),
    }
}
