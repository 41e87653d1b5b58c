//! Operators on values. A null operand gives null, except for IS.

use super::code::Binary;
use crate::value::Value;
use crate::value::error::EvaluationError;

/// Evaluates a binary operator.
///
/// The operation is on doubles if one operand is a double, except remainder and bitwise operators, which are on
/// integers only.
#[inline]
pub fn binary(operator: Binary, left: Value, right: Value) -> Result<Value, EvaluationError> {
    match (left, right) {
        (Value::Null, _) | (_, Value::Null) => Ok(Value::Null),
        (Value::Int(left), Value::Int(right)) => of_ints(operator, left, right),
        (Value::Double(_), _) | (_, Value::Double(_)) if takes_doubles(operator) => {
            Ok(of_doubles(operator, left.double()?, right.double()?))
        }
        _ => of_ints(operator, left.int()?, right.int()?),
    }
}

fn takes_doubles(operator: Binary) -> bool {
    !matches!(
        operator,
        Binary::Modulo
            | Binary::BitAnd
            | Binary::BitOr
            | Binary::BitXor
            | Binary::ShiftLeft
            | Binary::ShiftRight
    )
}

#[inline]
fn of_ints(operator: Binary, left: i64, right: i64) -> Result<Value, EvaluationError> {
    let checked = |result: Option<i64>, name| result.ok_or(EvaluationError::OutOfRange(name));
    Ok(Value::Int(match operator {
        Binary::Add => checked(left.checked_add(right), "add")?,
        Binary::Subtract => checked(left.checked_sub(right), "sub")?,
        Binary::Multiply => checked(left.checked_mul(right), "mul")?,
        Binary::Divide | Binary::Modulo if right == 0 => return Err(EvaluationError::DivisionByZero),
        Binary::Divide => checked(left.checked_div(right), "div")?,
        Binary::Modulo => left.wrapping_rem(right),
        Binary::BitAnd => left & right,
        Binary::BitOr => left | right,
        Binary::BitXor => left ^ right,
        // As on the processor in pgbench: only the six lowest bits of the distance count.
        Binary::ShiftLeft => left.wrapping_shl(right as u32),
        Binary::ShiftRight => left.wrapping_shr(right as u32),
        Binary::Equal => return Ok(Value::Boolean(left == right)),
        Binary::NotEqual => return Ok(Value::Boolean(left != right)),
        Binary::Less => return Ok(Value::Boolean(left < right)),
        Binary::LessEqual => return Ok(Value::Boolean(left <= right)),
    }))
}

#[allow(clippy::float_cmp)] // The user requests an exact comparison.
fn of_doubles(operator: Binary, left: f64, right: f64) -> Value {
    match operator {
        Binary::Add => Value::Double(left + right),
        Binary::Subtract => Value::Double(left - right),
        Binary::Multiply => Value::Double(left * right),
        Binary::Divide => Value::Double(left / right),
        Binary::Equal => Value::Boolean(left == right),
        Binary::NotEqual => Value::Boolean(left != right),
        Binary::Less => Value::Boolean(left < right),
        Binary::LessEqual => Value::Boolean(left <= right),
        // [`takes_doubles`] excludes the other operators.
        _ => Value::Null,
    }
}

/// Negation as 0 minus the operand, as in the grammar: the double 0 gives 0, not -0.
pub fn negate(operand: Value) -> Result<Value, EvaluationError> {
    binary(Binary::Subtract, Value::Int(0), operand)
}

/// Bitwise NOT.
pub fn complement(operand: Value) -> Result<Value, EvaluationError> {
    binary(Binary::BitXor, Value::Int(-1), operand)
}

/// Logical NOT.
pub fn not(operand: Value) -> Result<Value, EvaluationError> {
    if operand == Value::Null { Ok(Value::Null) } else { Ok(Value::Boolean(!operand.boolean()?)) }
}

/// The right side of AND and OR as their result: a boolean or null.
pub fn truth(operand: Value) -> Result<Value, EvaluationError> {
    if operand == Value::Null { Ok(Value::Null) } else { operand.boolean().map(Value::Boolean) }
}
