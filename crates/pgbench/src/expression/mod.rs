//! Expressions of `\set`, `\if` and `\elif`: parsed once, to code that runs on a stack and allocates nothing.

pub mod arithmetic;
pub mod code;
mod evaluate;
mod functions;
pub mod lexer;
mod parser;
mod print;

#[cfg(test)]
mod tests;

pub use evaluate::Scope;

use code::Operation;

use super::variables::Names;

/// How deeply operands can be nested: reading them recurses.
pub const DEPTH_MAX: usize = 400;

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

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    code: Box<[Operation]>,
}

impl Expression {
    /// Reads the expression that begins at the byte `at` and ends with its line, and gives the byte behind the line.
    /// Variables are looked up in `names` and added there.
    pub fn parse(text: &[u8], at: usize, names: &mut Names) -> Result<(Self, usize), SyntaxError> {
        let (code, end) = parser::Parser::parse(text, at, names)?;
        Ok((Self { code: code.into() }, end))
    }

    /// Its operations, in order.
    #[must_use]
    pub fn code(&self) -> &[Operation] {
        &self.code
    }
}
