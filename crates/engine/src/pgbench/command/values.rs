//! Values of options that are numbers, read as pgbench reads them.

use std::num::IntErrorKind;

use super::options::{Refusal, refuse};
use crate::pgbench::value::parse::leading_int;

/// An integer from 1 on.
pub fn integer(value: &str, option: &str) -> Result<u32, Refusal> {
    integer_between(value, option, 1, i32::MAX)
}

/// An integer in a range that is not negative.
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

/// The number that a text begins with, as C's `atof` reads it; 0 where there is none.
#[must_use]
pub fn leading_double(value: &str) -> f64 {
    let text = value.trim_start();
    let mut ends = (0..=text.len()).rev().filter(|&end| text.is_char_boundary(end));
    ends.find_map(|end| text[..end].parse::<f64>().ok()).unwrap_or(0.0)
}

/// A number above 0.
pub fn positive(value: &str, what: &str) -> Result<f64, Refusal> {
    let number = leading_double(value);
    if number > 0.0 { Ok(number) } else { refuse(format!("invalid {what}: \"{value}\"")) }
}

/// How often a transaction may be tried; 0 is no limit.
pub fn max_tries(value: &str) -> Result<u32, Refusal> {
    let number = leading_int(value.as_bytes());
    u32::try_from(number).or_else(|_| refuse(format!("invalid number of maximum tries: \"{value}\"")))
}
