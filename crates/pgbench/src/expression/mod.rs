//! Expressions of `\set`, `\if` and `\elif`: parsed once to code for a stack machine that does not allocate.

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

/// A parsed expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    code: Box<[Operation]>,
}

impl Expression {
    /// Parses the expression from the byte `at` to the end of its line. Returns it with the position after the
    /// line.
    ///
    /// Variables are resolved in `names` and added there.
    pub fn parse(text: &[u8], at: usize, names: &mut Names) -> Result<(Self, usize), SyntaxError> {
        let (code, end) = parser::Parser::parse(text, at, names)?;
        Ok((Self { code: code.into() }, end))
    }

    /// The operations in order.
    #[must_use]
    pub fn code(&self) -> &[Operation] {
        &self.code
    }
}
