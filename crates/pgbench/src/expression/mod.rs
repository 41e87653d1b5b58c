//! Expressions of `\set`, `\if` and `\elif`: parsed once, to code that runs on a stack and allocates nothing.

pub mod arithmetic;
pub mod code;
mod error;
mod evaluate;
mod functions;
pub mod lexer;
mod parser;
mod print;

#[cfg(test)]
mod tests;

pub use error::SyntaxError;
pub use evaluate::Scope;
pub use parser::DEPTH_MAX;

use code::Operation;

use super::variables::Names;

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
