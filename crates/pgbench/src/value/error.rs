//! What can go wrong while an expression is evaluated, in pgbench's words.

use thiserror::Error;

use super::number::fixed;
use crate::random::distribution::{GAUSSIAN_MIN, ZIPFIAN_MAX, ZIPFIAN_MIN};

/// How many arguments a function can have when it is evaluated.
pub const ARGUMENTS_MAX: usize = 16;

/// Why an expression has no value.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum EvaluationError {
    /// A variable that nothing has given a value.
    #[error("undefined variable \"{0}\"")]
    Undefined(String),
    /// A variable whose value is the empty text. pgbench says nothing of it; the message of the command follows.
    #[error("")]
    Empty,
    /// A variable's text is no value of the language.
    #[error("malformed variable \"{name}\" value: \"{text}\"")]
    Malformed {
        /// The variable.
        name: String,
        /// What it holds.
        text: String,
    },
    /// A variable's text looks like an integer that is too large.
    #[error("value \"{0}\" is out of range for type bigint")]
    IntTooLarge(String),
    /// A variable's text looks like an integer without digits.
    #[error("invalid input syntax for type bigint: \"{0}\"")]
    IntSyntax(String),
    /// A value of one type where another is wanted.
    #[error("cannot coerce {from} to {to}")]
    Coercion {
        /// The type there is.
        from: &'static str,
        /// The type that is wanted.
        to: &'static str,
    },
    /// A double that no integer is near to.
    #[error("double to int overflow for {}", fixed(*.0))]
    DoubleToInt(f64),
    /// An integer result that does not fit: of add, sub, mul or div.
    #[error("bigint {0} out of range")]
    OutOfRange(&'static str),
    /// An integer divided by 0.
    #[error("division by zero")]
    DivisionByZero,
    /// More arguments than [`ARGUMENTS_MAX`].
    #[error("too many function arguments, maximum is {ARGUMENTS_MAX}")]
    TooManyArguments,
    /// The limits of a random function are in the wrong order.
    #[error("empty range given to random")]
    EmptyRange,
    /// The limits of a random function are too far apart.
    #[error("random range is too large")]
    RangeTooLarge,
    /// The third argument of `random_gaussian`.
    #[error("gaussian parameter must be at least {} (not {})", fixed(GAUSSIAN_MIN), fixed(*.0))]
    Gaussian(f64),
    /// The third argument of `random_exponential`.
    #[error("exponential parameter must be greater than zero (not {})", fixed(*.0))]
    Exponential(f64),
    /// The third argument of `random_zipfian`.
    #[error("zipfian parameter must be in range [{ZIPFIAN_MIN:.3}, {ZIPFIAN_MAX:.0}] (not {})", fixed(*.0))]
    Zipfian(f64),
    /// The second argument of `permute`.
    #[error("permute size parameter must be greater than zero")]
    PermuteSize,
}
