//! Parameter values in PostgreSQL's binary format.

use std::io::Write;

use super::super::numeric;

/// A value that Bind can send in binary format.
pub trait Parameter {
    /// Appends the value's bytes, without a length; `false`, and nothing appended, for NULL.
    fn append(&self, out: &mut Vec<u8>) -> bool;

    /// Appends the value as a literal of SQL, for statements that are sent as text.
    fn append_literal(&self, out: &mut Vec<u8>);
}

/// A `numeric` in hundredths, for amounts of money: `Cents(1234)` is 12.34.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cents(pub i64);

/// A `numeric` of any scale: `Decimal { scaled: 725, scale: 4 }` is 0.0725.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decimal {
    /// The value times 10^scale.
    pub scaled: i64,
    /// Number of decimals.
    pub scale: u8,
}

/// Appends an integer in decimal.
#[inline]
pub fn write_int(out: &mut Vec<u8>, int: i64) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    let mut rest = int.unsigned_abs();
    while rest > 0 || start == digits.len() {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    if int < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[start..]);
}

fn plain(out: &mut Vec<u8>, value: &dyn std::fmt::Display) {
    let _ = write!(out, "{value}"); // Writing to a Vec cannot fail.
}

/// A string constant. A quote is doubled; a backslash is an ordinary character (standard_conforming_strings).
fn quoted(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'\'');
    for &byte in text {
        if byte == b'\'' {
            out.push(byte);
        }
        out.push(byte);
    }
    out.push(b'\'');
}

macro_rules! parameter_from_be_bytes {
    ($($type:ty),*) => {$(
        impl Parameter for $type {
            fn append(&self, out: &mut Vec<u8>) -> bool {
                out.extend_from_slice(&self.to_be_bytes());
                true
            }

            fn append_literal(&self, out: &mut Vec<u8>) {
                plain(out, self);
            }
        }
    )*};
}
parameter_from_be_bytes!(i16, i32, i64, f64);

impl Parameter for bool {
    fn append(&self, out: &mut Vec<u8>) -> bool {
        out.push(u8::from(*self));
        true
    }

    fn append_literal(&self, out: &mut Vec<u8>) {
        plain(out, self);
    }
}

impl Parameter for &str {
    fn append(&self, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(self.as_bytes());
        true
    }

    fn append_literal(&self, out: &mut Vec<u8>) {
        quoted(out, self.as_bytes());
    }
}

impl Parameter for &[u8] {
    fn append(&self, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(self);
        true
    }

    fn append_literal(&self, out: &mut Vec<u8>) {
        quoted(out, self);
    }
}

impl Parameter for String {
    fn append(&self, out: &mut Vec<u8>) -> bool {
        self.as_str().append(out)
    }

    fn append_literal(&self, out: &mut Vec<u8>) {
        self.as_str().append_literal(out);
    }
}

impl Parameter for Cents {
    fn append(&self, out: &mut Vec<u8>) -> bool {
        numeric::append(out, self.0, 2);
        true
    }

    fn append_literal(&self, out: &mut Vec<u8>) {
        Decimal { scaled: self.0, scale: 2 }.append_literal(out);
    }
}

impl Parameter for Decimal {
    fn append(&self, out: &mut Vec<u8>) -> bool {
        numeric::append(out, self.scaled, self.scale);
        true
    }

    fn append_literal(&self, out: &mut Vec<u8>) {
        let unit = 10_u64.pow(u32::from(self.scale));
        let sign = if self.scaled < 0 { "-" } else { "" };
        let (whole, part) = (self.scaled.unsigned_abs() / unit, self.scaled.unsigned_abs() % unit);
        match self.scale {
            0 => plain(out, &self.scaled),
            scale => plain(out, &format_args!("{sign}{whole}.{part:0width$}", width = usize::from(scale))),
        }
    }
}

impl<T: Parameter> Parameter for Option<T> {
    fn append(&self, out: &mut Vec<u8>) -> bool {
        self.as_ref().is_some_and(|value| value.append(out))
    }

    fn append_literal(&self, out: &mut Vec<u8>) {
        match self {
            Some(value) => value.append_literal(out),
            None => out.extend_from_slice(b"NULL"),
        }
    }
}

/// A Rust type that is the element of a PostgreSQL array.
pub trait Element: Parameter {
    /// The OID of the element's type.
    const OID: u32;
}

impl Element for i16 {
    const OID: u32 = 21;
}
impl Element for i32 {
    const OID: u32 = 23;
}

/// One-dimensional arrays with lower bound 1, without NULLs.
impl<T: Element> Parameter for &[T] {
    fn append(&self, out: &mut Vec<u8>) -> bool {
        let dimensions = i32::from(!self.is_empty());
        out.extend_from_slice(&dimensions.to_be_bytes());
        out.extend_from_slice(&0i32.to_be_bytes());
        out.extend_from_slice(&T::OID.to_be_bytes());
        if self.is_empty() {
            return true;
        }
        out.extend_from_slice(&(self.len() as i32).to_be_bytes());
        out.extend_from_slice(&1i32.to_be_bytes());
        for element in *self {
            let at = out.len();
            out.extend_from_slice(&[0; 4]);
            element.append(out);
            let length = (out.len() - at - 4) as i32;
            out[at..at + 4].copy_from_slice(&length.to_be_bytes());
        }
        true
    }

    fn append_literal(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"'{");
        for (index, element) in self.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            element.append_literal(out);
        }
        out.extend_from_slice(b"}'");
    }
}
