//! Messages on standard error, in the format of PostgreSQL's programs.

use super::connect::attempts_text;
use super::libpq::{self, system_text};
use reactor::{self as standard, Error, tell};

/// A reported failure.
#[derive(Clone, Copy, Debug)]
pub struct Reported;

/// Logger of messages.
#[derive(Clone, Debug)]
pub struct Log {
    /// Name of the program as called.
    pub program: String,
    /// Whether debug messages are printed.
    pub debug: bool,
}

impl Log {
    /// Writes to standard output. Reports an error.
    pub fn print(&self, text: &str) -> Result<(), Reported> {
        standard::print(text).map_err(|error| {
            self.error(&format!("could not write to standard output: {}", system_text(&error)));
            Reported
        })
    }

    /// Prints an information.
    pub fn info(&self, message: &str) {
        tell(format_args!("{}: {message}\n", self.program));
    }

    /// Prints a debug message, which is only created if needed.
    pub fn debug(&self, message: impl FnOnce() -> String) {
        if self.debug {
            self.info(&message());
        }
    }

    /// Prints an error.
    pub fn error(&self, message: &str) {
        self.info(&format!("error: {message}"));
    }

    /// Prints a warning.
    pub fn warning(&self, message: &str) {
        self.info(&format!("warning: {message}"));
    }

    /// Prints a detail of the preceding error.
    pub fn detail(&self, message: &str) {
        self.info(&format!("detail: {message}"));
    }

    /// Prints a hint for the preceding error.
    pub fn hint(&self, message: &str) {
        self.info(&format!("hint: {message}"));
    }
}

/// Formats an error; one of the server in several lines, as libpq does without a statement.
pub fn server_text(error: &Error) -> String {
    statement_text(error, None)
}

/// Formats an error; one of the server in several lines, as libpq does with the position in the statement.
pub fn statement_text(error: &Error, statement: Option<&str>) -> String {
    match error {
        Error::Server(error) => libpq::error_text(error, statement),
        Error::Unconnected(attempts) => attempts_text(attempts),
        other => other.to_string(),
    }
}
