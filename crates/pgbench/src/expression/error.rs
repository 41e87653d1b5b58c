//! Syntax errors of expressions.

/// A syntax error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Message.
    pub message: &'static str,
    /// Detail of the message.
    pub detail: Option<String>,
    /// Last byte of the token with the error.
    pub at: usize,
    /// The byte after the line, including the newline.
    pub line_end: usize,
}
