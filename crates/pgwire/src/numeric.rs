//! Conversion between an `i64` scaled by a power of ten and PostgreSQL's binary `numeric`.
//!
//! A binary `numeric` has base-10000 digits, a weight (the exponent of the first digit), a sign and a display
//! scale. NaN and infinity are not written, and are read as `None`.

const POSITIVE: u16 = 0x0000;
const NEGATIVE: u16 = 0x4000;
const BASE: u64 = 10_000;
/// 19 decimal digits of an `i64` and up to three zeros of alignment: at most six base-10000 digits.
const DIGITS_MAX: usize = 6;
/// Maximum display scale in PostgreSQL: 14 bits.
const DISPLAY_SCALE_MAX: u16 = 0x3fff;

/// Maximum number of bytes written by [`append`].
pub const ENCODED_BYTES_MAX: usize = 8 + 2 * DIGITS_MAX;

/// Appends `scaled / 10^scale` in binary format, without a length, with the display scale `scale`.
pub fn append(out: &mut Vec<u8>, scaled: i64, scale: u8) {
    let (bytes, length) = encode(scaled, scale);
    out.extend_from_slice(&bytes[4..length]);
}

/// Appends the same after its length, as in COPY and Bind.
#[inline]
pub fn append_sized(out: &mut Vec<u8>, scaled: i64, scale: u8) {
    let (bytes, length) = encode(scaled, scale);
    out.extend_from_slice(&bytes[..length]);
}

/// The length and the value in binary format, and their total size in bytes.
#[inline]
fn encode(scaled: i64, scale: u8) -> ([u8; 4 + ENCODED_BYTES_MAX], usize) {
    let fraction_digits = i16::from(scale.div_ceil(4));
    let mut digits = [0u8; 2 * DIGITS_MAX];
    let first = split(scaled.unsigned_abs(), ALIGN[usize::from(scale % 4)], &mut digits);
    let count = (DIGITS_MAX - first) as i16;
    let kept = digits[2 * first..].chunks_exact(2).rposition(|d| d != [0, 0]).map_or(0, |last| last + 1);
    let weight = if kept == 0 { 0 } else { count - 1 - fraction_digits };
    let sign = if scaled < 0 { NEGATIVE } else { POSITIVE };

    let mut bytes = [0; 4 + ENCODED_BYTES_MAX];
    let length = 12 + 2 * kept;
    bytes[..4].copy_from_slice(&(length as u32 - 4).to_be_bytes());
    bytes[4..6].copy_from_slice(&(kept as i16).to_be_bytes());
    bytes[6..8].copy_from_slice(&weight.to_be_bytes());
    bytes[8..10].copy_from_slice(&sign.to_be_bytes());
    bytes[10..12].copy_from_slice(&u16::from(scale).to_be_bytes());
    bytes[12..length].copy_from_slice(&digits[2 * first..2 * (first + kept)]);
    (bytes, length)
}

/// Factor by `scale % 4` that aligns the last decimals to a base-10000 digit.
const ALIGN: [u64; 4] = [1, 1000, 100, 10];

/// Writes the base-10000 digits of `magnitude × align` at the end of `digits`. Returns the index of the first
/// one.
fn split(magnitude: u64, align: u64, digits: &mut [u8; 2 * DIGITS_MAX]) -> usize {
    let low_factor = BASE / align;
    let mut next = DIGITS_MAX;
    let mut put = |digit: u64, rest: u64| {
        next -= 1;
        digits[2 * next..2 * next + 2].copy_from_slice(&(digit as u16).to_be_bytes());
        rest
    };
    if magnitude == 0 {
        return DIGITS_MAX;
    }
    // The lowest digit is aligned separately, so that nothing overflows and no 128-bit division is needed.
    let mut rest = put((magnitude % low_factor) * align, magnitude / low_factor);
    while rest > 0 {
        rest = put(rest % BASE, rest / BASE);
    }
    next
}

/// Reads the binary format as an integer scaled by `10^scale`.
///
/// `None` if it is malformed, NaN, infinite, has more nonzero decimals than `scale`, or does not fit.
#[must_use]
pub fn read(body: &[u8], scale: u8) -> Option<i64> {
    let (head, digits) = body.split_first_chunk::<8>()?;
    let word = |i: usize| u16::from_be_bytes([head[2 * i], head[2 * i + 1]]);
    let (count, weight, sign, display_scale) = (word(0), word(1) as i16, word(2), word(3));
    if digits.len() != 2 * usize::from(count) || display_scale > DISPLAY_SCALE_MAX {
        return None;
    }
    let mut magnitude: i128 = 0;
    let mut exponent = i32::from(weight) * 4 + i32::from(scale);
    for digit in digits.chunks_exact(2) {
        let digit = i128::from(u16::from_be_bytes([digit[0], digit[1]]));
        if digit >= i128::from(BASE) {
            return None;
        }
        magnitude = magnitude.checked_add(shift(digit, exponent)?)?;
        exponent -= 4;
    }
    match sign {
        POSITIVE => i64::try_from(magnitude).ok(),
        NEGATIVE => i64::try_from(-magnitude).ok(),
        _ => None,
    }
}

/// `digit × 10^exponent`, exactly; `None` if it is not an integer or too large.
fn shift(digit: i128, exponent: i32) -> Option<i128> {
    if digit == 0 {
        return Some(0);
    }
    let factor = 10i128.checked_pow(exponent.unsigned_abs())?;
    if exponent >= 0 { digit.checked_mul(factor) } else { (digit % factor == 0).then_some(digit / factor) }
}
