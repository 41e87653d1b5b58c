//! Number parsing, as by C's `strtol` and `strtod` in pgbench.

/// Error of parsing an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntError {
    /// Out of the range of 64 bits.
    Range,
    /// No digits, or trailing characters.
    Syntax,
}

/// C's `isspace`.
#[must_use]
pub fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

/// Whether a text is parsed as an integer: white space, a sign, digits. Without digits, the integer is invalid.
#[must_use]
pub fn looks_like_int(text: &[u8]) -> bool {
    unsigned_part(text).iter().all(u8::is_ascii_digit)
}

/// Parses a 64-bit integer: white space, a sign, digits.
pub fn parse_int(text: &[u8]) -> Result<i64, IntError> {
    let digits = unsigned_part(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(IntError::Syntax);
    }
    let negative = text[..text.len() - digits.len()].last() == Some(&b'-');
    let add = |sum: i64, digit: &u8| {
        let digit = i64::from(digit - b'0');
        let sum = sum.checked_mul(10)?;
        if negative { sum.checked_sub(digit) } else { sum.checked_add(digit) }
    };
    digits.iter().try_fold(0, add).ok_or(IntError::Range)
}

fn unsigned_part(text: &[u8]) -> &[u8] {
    let text = &text[text.iter().take_while(|&&byte| is_space(byte)).count()..];
    match text {
        [b'+' | b'-', rest @ ..] => rest,
        _ => text,
    }
}

/// Parses a complete text as a double, as C's `strtod` does; `None` also on overflow or underflow.
#[must_use]
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
