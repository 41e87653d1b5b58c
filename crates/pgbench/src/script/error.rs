//! What is wrong with a script, in pgbench's words and with its caret.

use std::fmt;

/// Why a script cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    /// The message, with the script and the line if one is to blame.
    pub message: String,
    /// The whole command that is to blame. It has several lines where it is continued.
    pub line: Option<String>,
    /// The byte of `line` where the error was found, from 0.
    pub column: Option<usize>,
}

impl std::error::Error for ScriptError {}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        let Some(line) = &self.line else { return Ok(()) };
        write!(f, "\n{line}")?;
        match self.column {
            // A width of its own a format would take up to 65535 only.
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

/// Where in which script a command begins with its backslash.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The name of the script.
    pub script: &'a str,
    /// The line, from 1.
    pub line_number: usize,
    /// The byte of the script.
    pub start: usize,
}

impl Place<'_> {
    /// The error of a command; `command` is its name as the script has it.
    #[must_use]
    pub fn error(&self, message: &str, detail: Option<&str>, command: Option<&str>) -> ScriptError {
        let detail = detail.map(|detail| format!(" ({detail})")).unwrap_or_default();
        let command = command.map(|command| format!(" in command \"{command}\"")).unwrap_or_default();
        format!("{}:{}: {message}{detail}{command}", self.script, self.line_number).into()
    }
}
