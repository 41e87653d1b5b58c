//! Values of pgbench's language: four types, their coercions and their text.

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
    /// SQL's null.
    Null,
    /// A truth value.
    Boolean(bool),
    /// An integer of 64 bits.
    Int(i64),
    /// A floating-point number of 64 bits.
    Double(#[serde(with = "bits")] f64),
}

impl Value {
    /// What messages call its type.
    #[must_use]
    pub fn type_name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean(_) => "boolean",
            Self::Int(_) => "int",
            Self::Double(_) => "double",
        }
    }

    /// Whether a condition that has this value holds: null does not, a number does unless it is 0.
    #[must_use]
    pub fn is_true(self) -> bool {
        match self {
            Self::Null => false,
            Self::Boolean(truth) => truth,
            Self::Int(int) => int != 0,
            Self::Double(double) => double != 0.0,
        }
    }

    /// As the operand of a logical operator: a boolean only.
    pub fn boolean(self) -> Result<bool, EvaluationError> {
        match self {
            Self::Boolean(truth) => Ok(truth),
            other => Err(other.cannot_become("boolean")),
        }
    }

    /// As an integer; a double is rounded to the nearest, halves to the even one.
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

    /// As a double; an integer becomes the nearest.
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

    /// Appends the value as it stands in SQL and as a parameter. Allocates nothing but the growth of `out`.
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

/// What `debug()` writes to standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DebugLine {
    /// The index of the script.
    pub script: usize,
    /// The index of the command in its script, from 0; shown from 1.
    pub command: usize,
    /// The argument.
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
