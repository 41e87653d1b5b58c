//! COPY BINARY: rows as bytes, appended to a buffer.
//!
//! This is the loader's hot path: no allocation, and no checks beyond the types. Call [`header`], then for each
//! row [`row`] with the number of columns and one function per column, then [`trailer`]. The bytes are sent in
//! CopyData messages, split at any position: [`super::frontend::copy_data_begin`].

use super::numeric;

const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";
const NULL: [u8; 4] = (-1i32).to_be_bytes();

/// Appends the file header: the signature, no flags, no extension.
pub fn header(out: &mut Vec<u8>) {
    out.extend_from_slice(SIGNATURE);
    out.extend_from_slice(&[0; 8]);
}

/// Starts a row with `columns` columns.
#[inline]
pub fn row(out: &mut Vec<u8>, columns: i16) {
    out.extend_from_slice(&columns.to_be_bytes());
}

/// Appends the end of the data.
pub fn trailer(out: &mut Vec<u8>) {
    out.extend_from_slice(&(-1i16).to_be_bytes());
}

/// Appends NULL, of any type.
#[inline]
pub fn null(out: &mut Vec<u8>) {
    out.extend_from_slice(&NULL);
}

/// Appends a `smallint`.
#[inline]
pub fn int2(out: &mut Vec<u8>, value: i16) {
    let [a, b] = value.to_be_bytes();
    out.extend_from_slice(&[0, 0, 0, 2, a, b]);
}

/// Appends an `integer`.
#[inline]
pub fn int4(out: &mut Vec<u8>, value: i32) {
    let [a, b, c, d] = value.to_be_bytes();
    out.extend_from_slice(&[0, 0, 0, 4, a, b, c, d]);
}

/// Appends a `bigint`.
#[inline]
pub fn int8(out: &mut Vec<u8>, value: i64) {
    let mut field = [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    field[4..].copy_from_slice(&value.to_be_bytes());
    out.extend_from_slice(&field);
}

/// Appends a `text`, `varchar` or `char(n)` (padded by the server). The limit is 1 GiB, as for any field in
/// PostgreSQL.
#[inline]
pub fn text(out: &mut Vec<u8>, value: &[u8]) {
    out.extend_from_slice(&(value.len() as i32).to_be_bytes());
    out.extend_from_slice(value);
}

/// Appends a `numeric(p, scale)`: the value is `scaled / 10^scale`, exactly.
#[inline]
pub fn numeric(out: &mut Vec<u8>, scaled: i64, scale: u8) {
    numeric::append_sized(out, scaled, scale);
}

/// Appends a `timestamptz` or `timestamp`: microseconds since 2000-01-01 00:00 (UTC for the former).
#[inline]
pub fn timestamptz(out: &mut Vec<u8>, since_2000_us: i64) {
    int8(out, since_2000_us);
}
