//! Evaluation errors, with pgbench's messages.

use thiserror::Error;

use super::number::fixed;
use crate::random::distribution::{GAUSSIAN_MIN, ZIPFIAN_MAX, ZIPFIAN_MIN};

/// Maximum number of arguments of a function at evaluation.
pub const ARGUMENTS_MAX: usize = 16;

/// Evaluation error.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum EvaluationError {
    /// The variable is undefined.
    #[error("undefined variable \"{0}\"")]
    Undefined(String),
    /// The value of the variable is empty. pgbench prints nothing here; the message of the command follows.
    #[error("")]
    Empty,
    /// The text of the variable is not a value.
    #[error("malformed variable \"{name}\" value: \"{text}\"")]
    Malformed {
        /// Name of the variable.
        name: String,
        /// Text of the variable.
        text: String,
    },
    /// The text of the variable is an integer that is too large.
    #[error("value \"{0}\" is out of range for type bigint")]
    IntTooLarge(String),
    /// The text of the variable looks like an integer, but has no digits.
    #[error("invalid input syntax for type bigint: \"{0}\"")]
    IntSyntax(String),
    /// The value has the wrong type.
    #[error("cannot coerce {from} to {to}")]
    Coercion {
        /// Actual type.
        from: &'static str,
        /// Expected type.
        to: &'static str,
    },
    /// The double is out of the range of integers.
    #[error("double to int overflow for {}", fixed(*.0))]
    DoubleToInt(f64),
    /// The integer result of add, sub, mul or div is out of range.
    #[error("bigint {0} out of range")]
    OutOfRange(&'static str),
    /// Integer division by zero.
    #[error("division by zero")]
    DivisionByZero,
    /// More arguments than [`ARGUMENTS_MAX`].
    #[error("too many function arguments, maximum is {ARGUMENTS_MAX}")]
    TooManyArguments,
    /// The bounds of a random function are in the wrong order.
    #[error("empty range given to random")]
    EmptyRange,
    /// The range of a random function is too large.
    #[error("random range is too large")]
    RangeTooLarge,
    /// Invalid third argument of `random_gaussian`.
    #[error("gaussian parameter must be at least {} (not {})", fixed(GAUSSIAN_MIN), fixed(*.0))]
    Gaussian(f64),
    /// Invalid third argument of `random_exponential`.
    #[error("exponential parameter must be greater than zero (not {})", fixed(*.0))]
    Exponential(f64),
    /// Invalid third argument of `random_zipfian`.
    #[error("zipfian parameter must be in range [{ZIPFIAN_MIN:.3}, {ZIPFIAN_MAX:.0}] (not {})", fixed(*.0))]
    Zipfian(f64),
    /// Invalid second argument of `permute`.
    #[error("permute size parameter must be greater than zero")]
    PermuteSize,
}
