//! Numeric option values, parsed as in pgbench.

use std::num::IntErrorKind;

use pgbench::leading_int;
use pgbench::script::error::ScriptError;

use super::getopt::GetoptError;

/// An integer of at least 1.
pub fn integer(value: &str, option: &str) -> Result<u32, Refusal> {
    integer_between(value, option, 1, i32::MAX)
}

/// An integer in a nonnegative range.
pub fn integer_between(value: &str, option: &str, low: i32, high: i32) -> Result<u32, Refusal> {
    let number = value.trim().parse::<i32>();
    match number.map_err(|error| *error.kind()) {
        Ok(number) if (low..=high).contains(&number) => Ok(number as u32),
        Ok(_) | Err(IntErrorKind::PosOverflow | IntErrorKind::NegOverflow) => {
            refuse(format!("{option} must be in range {low}..{high}"))
        }
        Err(_) => refuse(format!("invalid value \"{value}\" for option {option}")),
    }
}

/// The leading number of a text, as by C's `atof`; 0 without one.
pub fn leading_double(value: &str) -> f64 {
    let text = value.trim_start();
    (1..=text.len()).rev().find_map(|end| text.get(..end)?.parse().ok()).unwrap_or(0.0)
}

/// A number greater than 0.
pub fn positive(value: &str, what: &str) -> Result<f64, Refusal> {
    let number = leading_double(value);
    if number > 0.0 { Ok(number) } else { refuse(format!("invalid {what}: \"{value}\"")) }
}

/// An unsigned 64-bit number, as by C's `sscanf`: negative ones wrap around, and those out of range become the
/// maximum.
pub fn unsigned(value: &str) -> Option<u64> {
    let text = value.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let Ok(number) = digits.parse::<u64>() else { return Some(u64::MAX) };
    Some(if text.starts_with('-') { number.wrapping_neg() } else { number })
}

/// A latency limit in ms, truncated to µs; `None` if it is less than 1 µs.
pub fn latency_limit_ms(value: &str) -> Result<Option<f64>, Refusal> {
    let limit_us = (positive(value, "latency limit")? * 1e3).trunc();
    Ok((limit_us > 0.0).then_some(limit_us / 1e3))
}

/// Maximum number of tries; 0 for no limit.
pub fn max_tries(value: &str) -> Result<u32, Refusal> {
    let number = leading_int(value.as_bytes());
    u32::try_from(number).or_else(|_| refuse(format!("invalid number of maximum tries: \"{value}\"")))
}

/// A usage error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// An error of getopt, printed after the program's name.
    Getopt(GetoptError),
    /// An error.
    Error(String),
    /// An error with a hint to `--help`.
    ErrorWithHint(String),
    /// An error with a detail.
    ErrorWithDetail(String, String),
}

impl From<ScriptError> for Refusal {
    fn from(error: ScriptError) -> Self {
        Self::Error(error.to_string())
    }
}

/// Returns a usage error with a message.
pub fn refuse<T>(message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Error(message.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsigned_numbers_are_parsed_as_in_c() {
        let cases = [
            ("5", Some(5)),
            (" \t+5", Some(5)),
            ("-5", Some(u64::MAX - 4)),
            ("-0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", Some(u64::MAX)),
            ("-18446744073709551615", Some(1)),
            ("-18446744073709551616", Some(u64::MAX)),
            ("", None),
            ("-", None),
            ("- 5", None),
            ("--5", None),
            ("5 ", None),
            ("0x5", None),
        ];
        for (value, expected) in cases {
            assert_eq!(unsigned(value), expected, "{value}");
        }
    }

    #[test]
    fn latency_limits_are_truncated_to_microseconds() {
        for (value, expected) in [("1.0005", Some(1.0)), ("0.0019", Some(0.001)), ("0.0001", None)] {
            assert_eq!(latency_limit_ms(value), Ok(expected), "{value}");
        }
        assert!(latency_limit_ms("0").is_err());
    }
}
