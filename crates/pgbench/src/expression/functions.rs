//! Functions and operators of expressions: operations of a stack machine, in pgbench's order of evaluation.

use crate::random::{
    GAUSSIAN_MIN, Prng, ZIPFIAN_MAX, ZIPFIAN_MIN, exponential, gaussian, hash, uniform, zipfian,
};
use crate::value::{EvaluationError, Value};
use crate::variables::Slot;

/// An operation. It pops its operands and pushes its result.
///
/// Skips count operations and only go forward, so that every evaluation ends and code is relocatable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation {
    /// Pushes a constant.
    Constant(Value),
    /// Pushes the value of a variable.
    Variable(Slot),
    /// Negation: 0 minus the operand.
    Negate,
    /// Bitwise NOT.
    Complement,
    /// Logical NOT.
    Not,
    /// Tests for identity with null or a boolean.
    Is(Value),
    /// Binary operator.
    Binary(Binary),
    /// Function with this number of arguments.
    Call(Function, u32),
    /// AND after its left side: if that is null or false, skips the right side and [`Operation::AndEnd`].
    AndThen(u32),
    /// AND after its right side, which is the result.
    AndEnd,
    /// OR after its left side: skips the rest if that is null or true.
    OrElse(u32),
    /// OR after its right side, which is the result.
    OrEnd,
    /// Skips a branch of CASE if its condition is not true.
    Unless(u32),
    /// Skips the rest of CASE after a branch.
    CaseSkip(u32),
    /// End of CASE with this number of conditions and an ELSE. No effect.
    CaseEnd(u32),
}

macro_rules! operators {
    ($($operator:ident = $sign:literal),+) => {
        /// Binary operators. `>` and `>=` are `<` and `<=` with exchanged operands, also in the order of evaluation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Binary { $($operator),+ }

        /// The operators by their signs in the source.
        pub const OPERATORS: &[(&str, Binary)] = &[$(($sign, Binary::$operator)),+];
    };
}

operators! {
    Add = "+", Subtract = "-", Multiply = "*", Divide = "/", Modulo = "%",
    BitAnd = "&", BitOr = "|", BitXor = "#", ShiftLeft = "<<", ShiftRight = ">>",
    Equal = "=", NotEqual = "<>", Less = "<", LessEqual = "<="
}

/// Functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Named as in pgbench's manual.
pub enum Function {
    Abs,
    Debug,
    Double,
    Exp,
    Greatest,
    HashFnv1a,
    HashMurmur2,
    Int,
    Least,
    Ln,
    Mod,
    Permute,
    Pi,
    Power,
    Random,
    RandomExponential,
    RandomGaussian,
    RandomZipfian,
    Sqrt,
}

/// Number of arguments of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// Exactly this many.
    Exactly(u32),
    /// One or more.
    OneOrMore,
    /// This many and an optional seed, by default `:default_seed`.
    AndSeed(u32),
}

/// The functions by their names in messages.
pub const FUNCTIONS: [(&str, Function, Arity); 21] = [
    ("abs", Function::Abs, Arity::Exactly(1)),
    ("debug", Function::Debug, Arity::Exactly(1)),
    ("double", Function::Double, Arity::Exactly(1)),
    ("exp", Function::Exp, Arity::Exactly(1)),
    ("greatest", Function::Greatest, Arity::OneOrMore),
    ("hash", Function::HashMurmur2, Arity::AndSeed(1)),
    ("hash_fnv1a", Function::HashFnv1a, Arity::AndSeed(1)),
    ("hash_murmur2", Function::HashMurmur2, Arity::AndSeed(1)),
    ("int", Function::Int, Arity::Exactly(1)),
    ("least", Function::Least, Arity::OneOrMore),
    ("ln", Function::Ln, Arity::Exactly(1)),
    ("mod", Function::Mod, Arity::Exactly(2)),
    ("permute", Function::Permute, Arity::AndSeed(2)),
    ("pi", Function::Pi, Arity::Exactly(0)),
    ("pow", Function::Power, Arity::Exactly(2)),
    ("power", Function::Power, Arity::Exactly(2)),
    ("random", Function::Random, Arity::Exactly(2)),
    ("random_exponential", Function::RandomExponential, Arity::Exactly(3)),
    ("random_gaussian", Function::RandomGaussian, Arity::Exactly(3)),
    ("random_zipfian", Function::RandomZipfian, Arity::Exactly(3)),
    ("sqrt", Function::Sqrt, Arity::Exactly(1)),
];

impl Function {
    /// Finds a function by name, case-insensitive. Returns its name in messages, the function, and its arity.
    pub fn find(word: &[u8]) -> Option<(&'static str, Self, Arity)> {
        FUNCTIONS.into_iter().find(|(name, _, _)| word.eq_ignore_ascii_case(name.as_bytes()))
    }
}

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
    use Binary::{BitAnd, BitOr, BitXor, Modulo, ShiftLeft, ShiftRight};
    !matches!(operator, Modulo | BitAnd | BitOr | BitXor | ShiftLeft | ShiftRight)
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

/// A syntax error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Message.
    pub message: &'static str,
    /// Detail of the message.
    pub detail: Option<String>,
    /// Last byte of the token with the error.
    pub at: usize,
    /// The byte after the line, including the newline.
    pub line_end: usize,
}
