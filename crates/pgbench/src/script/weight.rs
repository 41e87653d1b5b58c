//! Weight after the name of a script, as in `-f my.sql@3`.

use super::error::ScriptError;
use crate::value::parse_int;

/// Maximum weight.
pub const WEIGHT_MAX: u32 = i32::MAX as u32;

/// Splits at the last `@` into name and weight. The default weight is 1.
pub fn split_weight(option: &str) -> Result<(&str, u32), ScriptError> {
    let Some((name, weight)) = option.rsplit_once('@') else { return Ok((option, 1)) };
    let Ok(number) = parse_int(weight.as_bytes()) else {
        return Err(format!("invalid weight specification: @{weight}").into());
    };
    match u32::try_from(number) {
        Ok(weight) if weight <= WEIGHT_MAX => Ok((name, weight)),
        _ => Err(format!("weight specification out of range (0 .. {WEIGHT_MAX}): {number}").into()),
    }
}
