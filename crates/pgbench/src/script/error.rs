//! Script errors with pgbench's messages and caret.

use std::fmt;

/// A script error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    /// Message, with the script and the line if known.
    pub message: String,
    /// The complete command with the error. It has several lines if it is continued.
    pub line: Option<String>,
    /// Byte of `line` with the error, from 0.
    pub column: Option<usize>,
}

impl std::error::Error for ScriptError {}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        let Some(line) = &self.line else { return Ok(()) };
        write!(f, "\n{line}")?;
        match self.column {
            // A format width is limited to 65535.
            Some(column) => write!(f, "\n{}^ error found here", " ".repeat(column)),
            None => Ok(()),
        }
    }
}

impl From<String> for ScriptError {
    fn from(message: String) -> Self {
        Self { message, line: None, column: None }
    }
}

/// Position of a backslash command in a script.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Name of the script.
    pub script: &'a str,
    /// Line number, from 1.
    pub line_number: usize,
    /// Byte offset in the script.
    pub start: usize,
}

impl Place<'_> {
    /// An error of a command. `command` is its name as in the script.
    #[must_use]
    pub fn error(&self, message: &str, detail: Option<&str>, command: Option<&str>) -> ScriptError {
        let detail = detail.map(|detail| format!(" ({detail})")).unwrap_or_default();
        let command = command.map(|command| format!(" in command \"{command}\"")).unwrap_or_default();
        format!("{}:{}: {message}{detail}{command}", self.script, self.line_number).into()
    }
}
