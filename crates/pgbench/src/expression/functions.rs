//! pgbench's functions. The parser has checked the number of arguments, and no argument is null.

use super::arithmetic::binary;
use super::code::{Binary, Function};
use crate::random::distribution::{
    GAUSSIAN_MIN, ZIPFIAN_MAX, ZIPFIAN_MIN, exponential, gaussian, uniform, zipfian,
};
use crate::random::{Prng, hash};
use crate::value::Value;
use crate::value::error::EvaluationError;

/// Evaluates a function. Random ones draw from `prng`. The caller prints the argument of `debug`.
pub fn call(function: Function, arguments: &[Value], prng: &mut Prng) -> Result<Value, EvaluationError> {
    let double = |place: usize| arguments[place].double();
    let int = |place: usize| arguments[place].int();
    Ok(match function {
        Function::Debug => arguments[0],
        Function::Abs => absolute(arguments[0])?,
        Function::Double => Value::Double(double(0)?),
        Function::Exp => Value::Double(double(0)?.exp()),
        Function::Int => Value::Int(int(0)?),
        Function::Ln => Value::Double(double(0)?.ln()),
        Function::Mod => binary(Binary::Modulo, arguments[0], arguments[1])?,
        Function::Pi => Value::Double(std::f64::consts::PI),
        Function::Power => Value::Double(double(0)?.powf(double(1)?)),
        Function::Sqrt => Value::Double(double(0)?.sqrt()),
        Function::Greatest => extreme(arguments, |found, other| found > other, |found, other| found > other)?,
        Function::Least => extreme(arguments, |found, other| found < other, |found, other| found < other)?,
        Function::HashFnv1a => Value::Int(hash::fnv1a(int(0)?, int(1)?)),
        Function::HashMurmur2 => Value::Int(hash::murmur2(int(0)?, int(1)?)),
        Function::Permute => permutation(int(0)?, int(1)?, int(2)?)?,
        Function::Random
        | Function::RandomExponential
        | Function::RandomGaussian
        | Function::RandomZipfian => Value::Int(random(function, arguments, prng)?),
    })
}

/// The absolute value. The minimum integer has no negation and is unchanged.
fn absolute(value: Value) -> Result<Value, EvaluationError> {
    match value {
        Value::Int(int) => Ok(Value::Int(int.wrapping_abs())),
        other => {
            let double = other.double()?;
            Ok(Value::Double(if double < 0.0 { -double } else { double }))
        }
    }
}

/// The least or greatest argument, by `keeps`; a double if any argument is one.
fn extreme(
    arguments: &[Value],
    keeps_int: fn(i64, i64) -> bool,
    keeps_double: fn(f64, f64) -> bool,
) -> Result<Value, EvaluationError> {
    if arguments.iter().any(|value| matches!(value, Value::Double(_))) {
        let mut found = arguments[0].double()?;
        for value in &arguments[1..] {
            let other = value.double()?;
            found = if keeps_double(found, other) { found } else { other };
        }
        return Ok(Value::Double(found));
    }
    let mut found = arguments[0].int()?;
    for value in &arguments[1..] {
        let other = value.int()?;
        found = if keeps_int(found, other) { found } else { other };
    }
    Ok(Value::Int(found))
}

fn permutation(value: i64, size: i64, seed: i64) -> Result<Value, EvaluationError> {
    if size <= 0 {
        return Err(EvaluationError::PermuteSize);
    }
    Ok(Value::Int(hash::permute(value, size, seed)))
}

/// Random functions. A NaN parameter is an error here; pgbench would loop forever or draw meaningless numbers.
fn random(function: Function, arguments: &[Value], prng: &mut Prng) -> Result<i64, EvaluationError> {
    let (min, max) = (arguments[0].int()?, arguments[1].int()?);
    if min > max {
        return Err(EvaluationError::EmptyRange);
    }
    if max.checked_sub(min).and_then(|last| last.checked_add(1)).is_none() {
        return Err(EvaluationError::RangeTooLarge);
    }
    let Some(parameter) = arguments.get(2) else { return Ok(uniform(prng, min, max)) };
    let parameter = parameter.double()?;
    match function {
        Function::RandomGaussian if parameter >= GAUSSIAN_MIN => Ok(gaussian(prng, min, max, parameter)),
        Function::RandomGaussian => Err(EvaluationError::Gaussian(parameter)),
        Function::RandomZipfian if (ZIPFIAN_MIN..=ZIPFIAN_MAX).contains(&parameter) => {
            Ok(zipfian(prng, min, max, parameter))
        }
        Function::RandomZipfian => Err(EvaluationError::Zipfian(parameter)),
        _ if parameter > 0.0 => Ok(exponential(prng, min, max, parameter)),
        _ => Err(EvaluationError::Exponential(parameter)),
    }
}
