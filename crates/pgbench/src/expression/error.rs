//! Why a text is no expression.

/// Why a text is no expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// What is wrong.
    pub message: &'static str,
    /// With what.
    pub detail: Option<String>,
    /// The last byte of the token where it was found.
    pub at: usize,
    /// The byte behind the line, the newline included.
    pub line_end: usize,
}
