//! Number formatting, as by PostgreSQL's `snprintf` in pgbench.

use std::fmt::{self, Write};

/// Appends an integer in decimal.
#[inline]
pub fn write_int(int: i64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    let mut rest = int.unsigned_abs();
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if int < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[start..]);
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
        write_int(i64::from(exponent.abs()), out);
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
#[must_use]
pub fn fixed(double: f64) -> String {
    if double.is_infinite() {
        return if double > 0.0 { "Infinity".into() } else { "-Infinity".into() };
    }
    format!("{double:.6}")
}
