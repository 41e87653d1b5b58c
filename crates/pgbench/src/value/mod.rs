//! Values of pgbench's language: four types, their conversions and their text.

pub mod bits;
pub mod error;
pub mod number;
pub mod parse;

#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

use error::EvaluationError;

/// A value of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Value {
    /// SQL null.
    Null,
    /// A boolean.
    Boolean(bool),
    /// A 64-bit integer.
    Int(i64),
    /// A double.
    Double(#[serde(with = "bits")] f64),
}

impl Value {
    /// Name of its type in messages.
    #[must_use]
    pub fn type_name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean(_) => "boolean",
            Self::Int(_) => "int",
            Self::Double(_) => "double",
        }
    }

    /// Whether a condition with this value is true: null and 0 are not, other numbers are.
    #[must_use]
    pub fn is_true(self) -> bool {
        match self {
            Self::Null => false,
            Self::Boolean(truth) => truth,
            Self::Int(int) => int != 0,
            Self::Double(double) => double != 0.0,
        }
    }

    /// Converts an operand of a logical operator: booleans only.
    pub fn boolean(self) -> Result<bool, EvaluationError> {
        match self {
            Self::Boolean(truth) => Ok(truth),
            other => Err(other.cannot_become("boolean")),
        }
    }

    /// Converts to an integer; a double is rounded half to even.
    #[inline]
    pub fn int(self) -> Result<i64, EvaluationError> {
        const LIMIT: f64 = 9_223_372_036_854_775_808.0;
        match self {
            Self::Int(int) => Ok(int),
            Self::Double(double) => {
                let rounded = double.round_ties_even();
                let fits = (-LIMIT..LIMIT).contains(&rounded);
                if fits { Ok(rounded as i64) } else { Err(EvaluationError::DoubleToInt(rounded)) }
            }
            other => Err(other.cannot_become("int")),
        }
    }

    /// Converts to a double.
    #[inline]
    pub fn double(self) -> Result<f64, EvaluationError> {
        match self {
            Self::Double(double) => Ok(double),
            Self::Int(int) => Ok(int as f64),
            other => Err(other.cannot_become("double")),
        }
    }

    fn cannot_become(self, to: &'static str) -> EvaluationError {
        EvaluationError::Coercion { from: self.type_name(), to }
    }

    /// Appends the text of the value for SQL and parameters. Allocates only if `out` grows.
    pub fn write_text(self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.extend_from_slice(b"NULL"),
            Self::Boolean(true) => out.extend_from_slice(b"true"),
            Self::Boolean(false) => out.extend_from_slice(b"false"),
            Self::Int(int) => number::write_int(int, out),
            Self::Double(double) => number::write_double(double, out),
        }
    }
}

/// A line of `debug()` on standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DebugLine {
    /// Index of the script.
    pub script: usize,
    /// Index of the command in its script, from 0; shown from 1.
    pub command: usize,
    /// Argument.
    pub value: Value,
}

impl fmt::Display for DebugLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "debug(script={},command={}): ", self.script, self.command + 1)?;
        if self.value == Value::Null {
            return f.write_str("null");
        }
        let mut text = Vec::new();
        self.value.write_text(&mut text);
        write!(f, "{} {}", self.value.type_name(), String::from_utf8_lossy(&text))
    }
}
