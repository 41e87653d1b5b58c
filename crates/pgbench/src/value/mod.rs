//! Values of pgbench's language: four types, their conversions and their text.

#[cfg(test)]
mod tests;

use std::fmt::{self, Write};

use thiserror::Error;

use super::random::{GAUSSIAN_MIN, ZIPFIAN_MAX, ZIPFIAN_MIN};
use pgwire::frontend::write_int;

/// A value of an expression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// SQL null.
    Null,
    /// A boolean.
    Boolean(bool),
    /// A 64-bit integer.
    Int(i64),
    /// A double.
    Double(f64),
}

impl Value {
    /// Name of its type in messages.
    pub fn type_name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean(_) => "boolean",
            Self::Int(_) => "int",
            Self::Double(_) => "double",
        }
    }

    /// Whether a condition with this value is true: null and 0 are not, other numbers are.
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
            Self::Int(int) => write_int(out, int),
            Self::Double(double) => write_double(double, out),
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

/// Appends a double with 15 significant digits, as C's `%.15g` does.
pub fn write_double(double: f64, out: &mut Vec<u8>) {
    if !double.is_finite() || double == 0.0 {
        let negative = double.is_sign_negative() && !double.is_nan();
        out.extend_from_slice(if negative { b"-" } else { b"" });
        out.extend_from_slice(if double == 0.0 {
            b"0"
        } else if double.is_nan() {
            b"NaN"
        } else {
            b"Infinity"
        });
        return;
    }
    let mut scientific = Buffer { bytes: [0; 32], length: 0 };
    // A sign, 15 digits, a point and an exponent of at most five characters fit in the buffer.
    let _ = write!(scientific, "{:.14e}", double.abs());
    let (digits, exponent) = scientific.split();
    if double < 0.0 {
        out.push(b'-');
    }
    let significant = digits.iter().rposition(|&digit| digit != b'0').map_or(1, |last| last + 1);
    place(&digits[..significant], exponent, out);
}

/// Writes digits with a power of ten, in the shorter of C's two notations.
fn place(digits: &[u8], exponent: i32, out: &mut Vec<u8>) {
    const PRECISION: i32 = 15;
    if !(-4..PRECISION).contains(&exponent) {
        point_after(digits, 1, out);
        out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
        if exponent.abs() < 10 {
            out.push(b'0');
        }
        write_int(out, i64::from(exponent.abs()));
    } else if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.extend(std::iter::repeat_n(b'0', (-1 - exponent) as usize));
        out.extend_from_slice(digits);
    } else {
        let before_point = exponent as usize + 1;
        point_after(digits, before_point, out);
        out.extend(std::iter::repeat_n(b'0', before_point.saturating_sub(digits.len())));
    }
}

fn point_after(digits: &[u8], before_point: usize, out: &mut Vec<u8>) {
    let (before, after) = digits.split_at(before_point.min(digits.len()));
    out.extend_from_slice(before);
    if !after.is_empty() {
        out.push(b'.');
        out.extend_from_slice(after);
    }
}

/// A small buffer on the stack.
struct Buffer {
    bytes: [u8; 32],
    length: usize,
}

impl Write for Buffer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

impl Buffer {
    /// Splits `d.ddde-x` into the digits without the point, and the exponent.
    fn split(&mut self) -> (&[u8], i32) {
        let text = &mut self.bytes[..self.length];
        let mark = text.iter().position(|&byte| byte == b'e').unwrap_or(text.len());
        let exponent = std::str::from_utf8(&text[mark..]).ok().and_then(|text| text.get(1..)?.parse().ok());
        text.copy_within(2..mark, 1);
        (&text[..mark - 1], exponent.unwrap_or(0))
    }
}

/// Formats a double as C's `%f` does: six digits after the point.
pub fn fixed(double: f64) -> String {
    if double.is_infinite() {
        return if double > 0.0 { "Infinity".into() } else { "-Infinity".into() };
    }
    format!("{double:.6}")
}

/// Error of parsing an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntError {
    /// Out of the range of 64 bits.
    Range,
    /// No digits, or trailing characters.
    Syntax,
}

/// C's `isspace`.
pub fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

/// Whether a text is parsed as an integer: white space, a sign, digits. Without digits, the integer is invalid.
pub fn looks_like_int(text: &[u8]) -> bool {
    unsigned_part(text).iter().all(u8::is_ascii_digit)
}

/// Parses a 64-bit integer: white space, a sign, digits.
pub fn parse_int(text: &[u8]) -> Result<i64, IntError> {
    let digits = unsigned_part(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(IntError::Syntax);
    }
    std::str::from_utf8(text).unwrap_or_default().trim_start().parse().map_err(|_| IntError::Range)
}

fn unsigned_part(text: &[u8]) -> &[u8] {
    let text = &text[text.iter().take_while(|&&byte| is_space(byte)).count()..];
    match text {
        [b'+' | b'-', rest @ ..] => rest,
        _ => text,
    }
}

/// Parses a complete text as a double, as C's `strtod` does; `None` also on overflow or underflow.
pub fn parse_double(text: &[u8]) -> Option<f64> {
    let unsigned = unsigned_part(text);
    let sign = if text[..text.len() - unsigned.len()].last() == Some(&b'-') { -1.0 } else { 1.0 };
    let magnitude = match unsigned {
        [b'0', b'x' | b'X', rest @ ..] => hexadecimal(rest)?,
        [b'0'..=b'9' | b'.', ..] => decimal(unsigned)?,
        _ => named(unsigned)?,
    };
    Some(sign * magnitude)
}

/// Parses digits with a point and an exponent. Subnormal results other than 0 are rejected, because `strtod`
/// reports them as out of range.
fn decimal(text: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let mantissa = text.split(|byte| matches!(byte, b'e' | b'E')).next()?;
    let zero = mantissa.iter().all(|byte| matches!(byte, b'0' | b'.'));
    (number.is_normal() || (number == 0.0 && zero)).then_some(number)
}

fn named(text: &[u8]) -> Option<f64> {
    let lower = text.to_ascii_lowercase();
    match lower.as_slice() {
        b"inf" | b"infinity" => Some(f64::INFINITY),
        b"nan" => Some(f64::NAN),
        [b'n', b'a', b'n', b'(', inside @ .., b')'] => {
            inside.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').then_some(f64::NAN)
        }
        _ => None,
    }
}

/// Parses the text after `0x`: hexadecimal digits with a point, and a power of two after `p`.
fn hexadecimal(text: &[u8]) -> Option<f64> {
    let mut parts = text.splitn(2, |byte| matches!(byte, b'p' | b'P'));
    let (mantissa, exponent) = (parts.next()?, parts.next());
    let mut exponent = match exponent {
        None => 0,
        Some(text) if text.first().is_some_and(|&byte| is_space(byte)) => return None,
        // Larger exponents are out of range for any mantissa.
        Some(text) => parse_int(text).ok()?.clamp(-9999, 9999),
    };
    let (mut bits, mut digits, mut after_point) = (0_u64, 0, false);
    for &byte in mantissa {
        if byte == b'.' && !after_point {
            after_point = true;
            continue;
        }
        let digit = u64::from((byte as char).to_digit(16)?);
        digits += 1;
        exponent -= i64::from(after_point) * 4;
        if bits >> 60 == 0 {
            bits = bits << 4 | digit;
        } else {
            // Sticky bit: the remaining digits only affect rounding.
            bits |= u64::from(digit != 0);
            exponent += 4;
        }
    }
    if bits == 0 {
        return (digits > 0).then_some(0.0);
    }
    let half = (exponent / 2) as i32;
    let number = bits as f64 * 2_f64.powi(half) * 2_f64.powi(exponent as i32 - half);
    number.is_normal().then_some(number)
}

/// Parses the leading integer, as C's `atoi` does: 0 if there is none, saturating on overflow.
#[must_use]
pub fn leading_int(text: &[u8]) -> i64 {
    let unsigned = unsigned_part(text);
    let digits = unsigned.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let end = text.len() - unsigned.len() + digits;
    match parse_int(&text[..end]) {
        Ok(int) => int,
        Err(IntError::Syntax) => 0,
        Err(IntError::Range) if text[..text.len() - unsigned.len()].ends_with(b"-") => i64::MIN,
        Err(IntError::Range) => i64::MAX,
    }
}
