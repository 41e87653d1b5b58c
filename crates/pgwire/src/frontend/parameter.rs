//! Parameter values in PostgreSQL's binary format.

use super::super::numeric;

/// A value that Bind can send in binary format.
pub trait Parameter {
    /// Appends the value's bytes, without a length; `false`, and nothing appended, for NULL.
    fn append(&self, out: &mut Vec<u8>) -> bool;
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

/// A `timestamptz` in microseconds since 2000-01-01 00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamptz(pub i64);

macro_rules! parameter_from_be_bytes {
    ($($type:ty),*) => {$(
        impl Parameter for $type {
            fn append(&self, out: &mut Vec<u8>) -> bool {
                out.extend_from_slice(&self.to_be_bytes());
                true
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
}

impl Parameter for &str {
    fn append(&self, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(self.as_bytes());
        true
    }
}

impl Parameter for &[u8] {
    fn append(&self, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(self);
        true
    }
}

impl Parameter for String {
    fn append(&self, out: &mut Vec<u8>) -> bool {
        self.as_str().append(out)
    }
}

impl Parameter for Cents {
    fn append(&self, out: &mut Vec<u8>) -> bool {
        numeric::append(out, self.0, 2);
        true
    }
}

impl Parameter for Decimal {
    fn append(&self, out: &mut Vec<u8>) -> bool {
        numeric::append(out, self.scaled, self.scale);
        true
    }
}

impl Parameter for Timestamptz {
    fn append(&self, out: &mut Vec<u8>) -> bool {
        self.0.append(out)
    }
}

impl<T: Parameter> Parameter for Option<T> {
    fn append(&self, out: &mut Vec<u8>) -> bool {
        self.as_ref().is_some_and(|value| value.append(out))
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
impl Element for i64 {
    const OID: u32 = 20;
}
impl Element for Cents {
    const OID: u32 = 1700;
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
}
