//! Expressions of `\set`, `\if` and `\elif`: parsed once to code for a stack machine that does not allocate.

pub mod functions;
pub mod lexer;
mod parser;
#[cfg(test)]
mod tests;

use functions::{Function, Operation};

pub use functions::SyntaxError;

use super::random::Prng;
use super::value::{ARGUMENTS_MAX, EvaluationError, Value};
use super::variables::{Names, Variables};

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
}

/// Context of an evaluation: state of one client, and names for messages.
pub struct Scope<'a> {
    /// Names of the variables.
    pub names: &'a Names,
    /// Variables of the client. Texts are converted when first used.
    pub variables: &'a mut Variables,
    /// Generator of the client.
    pub random: &'a mut Prng,
    /// Stack, cleared at the start. Reuse it to avoid allocations.
    pub stack: &'a mut Vec<Value>,
    /// Handler of the arguments of `debug()`.
    pub debug: &'a mut dyn FnMut(Value),
}

impl Scope<'_> {
    /// Pops a value. The code of a parsed expression never underflows the stack.
    #[inline]
    fn pop(&mut self) -> Value {
        self.stack.pop().unwrap_or(Value::Null)
    }

    #[inline]
    fn replace(
        &mut self,
        with: impl FnOnce(Value) -> Result<Value, EvaluationError>,
    ) -> Result<(), EvaluationError> {
        let operand = self.pop();
        self.stack.push(with(operand)?);
        Ok(())
    }

    /// Short-circuits AND or OR if the left side is null or `deciding`: keeps the value and skips the rest.
    fn decide(&mut self, deciding: bool, skip: u32) -> Result<usize, EvaluationError> {
        let left = self.pop();
        let decided = left == Value::Null || left.boolean()? == deciding;
        if decided {
            self.stack.push(left);
        }
        Ok(if decided { skip as usize } else { 0 })
    }

    fn call(&mut self, function: Function, count: u32) -> Result<(), EvaluationError> {
        let count = count as usize;
        if count > ARGUMENTS_MAX {
            return Err(EvaluationError::TooManyArguments);
        }
        let first = self.stack.len().saturating_sub(count);
        let arguments = &self.stack[first..];
        let value = if function == Function::Debug {
            let value = arguments[0];
            (self.debug)(value);
            value
        } else if arguments.contains(&Value::Null) {
            Value::Null
        } else {
            functions::call(function, arguments, self.random)?
        };
        self.stack.truncate(first);
        self.stack.push(value);
        Ok(())
    }

    /// Executes one operation. Returns how many of the following ones to skip.
    #[inline]
    fn run(&mut self, operation: Operation) -> Result<usize, EvaluationError> {
        match operation {
            Operation::Constant(value) => self.stack.push(value),
            Operation::Variable(slot) => {
                let value = self.variables.value(slot, self.names)?;
                self.stack.push(value);
            }
            Operation::Binary(operator) => {
                let right = self.pop();
                self.replace(|left| functions::binary(operator, left, right))?;
            }
            Operation::Call(function, count) => self.call(function, count)?,
            Operation::Negate => self.replace(functions::negate)?,
            Operation::Complement => self.replace(functions::complement)?,
            Operation::Not => self.replace(functions::not)?,
            Operation::Is(wanted) => self.replace(|value| Ok(Value::Boolean(value == wanted)))?,
            Operation::AndThen(skip) => return self.decide(false, skip),
            Operation::OrElse(skip) => return self.decide(true, skip),
            Operation::AndEnd | Operation::OrEnd => self.replace(functions::truth)?,
            Operation::Unless(skip) => return Ok(if self.pop().is_true() { 0 } else { skip as usize }),
            Operation::CaseSkip(skip) => return Ok(skip as usize),
            Operation::CaseEnd(_) => {}
        }
        Ok(0)
    }
}

impl Expression {
    /// Evaluates the expression for a client.
    pub fn evaluate(&self, scope: &mut Scope<'_>) -> Result<Value, EvaluationError> {
        scope.stack.clear();
        let mut next = 0;
        while let Some(&operation) = self.code.get(next) {
            next += 1 + scope.run(operation)?;
        }
        Ok(scope.pop())
    }
}
