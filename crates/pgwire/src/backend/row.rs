//! DataRow: the columns of a result row.

use super::super::numeric;
use super::body::ProtocolError;

/// A result row: its values, by index from 0, in the format requested by Bind.
///
/// `i32` and `cents` read the binary format. They fail on NULL and on a value of unexpected length or shape, so
/// that a wrong column is detected. [`Row::get`] returns `None` for NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row<'a> {
    count: u16,
    values: &'a [u8],
}

impl<'a> Row<'a> {
    /// Checks that the body contains exactly the number of values in its header.
    #[inline]
    pub(super) fn read(body: &'a [u8]) -> Option<Self> {
        let (count, values) = body.split_first_chunk::<2>()?;
        let count = u16::from_be_bytes(*count);
        let mut rest = values;
        for _ in 0..count {
            (_, rest) = split_value(rest)?;
        }
        rest.is_empty().then_some(Self { count, values })
    }

    /// Number of columns.
    #[must_use]
    pub fn column_count(&self) -> usize {
        usize::from(self.count)
    }

    /// The columns from first to last; `None` is NULL.
    #[inline]
    pub fn columns(&self) -> impl Iterator<Item = Option<&'a [u8]>> + use<'a> {
        let mut rest = self.values;
        std::iter::from_fn(move || {
            let (value, next) = split_value(rest)?;
            rest = next;
            Some(value)
        })
    }

    /// The bytes of a column, `None` for NULL. Takes time proportional to the index.
    #[inline]
    pub fn get(&self, column: usize) -> Result<Option<&'a [u8]>, ProtocolError> {
        self.columns().nth(column).ok_or(ProtocolError::NoColumn { column, columns: self.column_count() })
    }

    /// An `integer`.
    #[inline]
    pub fn i32(&self, column: usize) -> Result<i32, ProtocolError> {
        let bytes = self.get(column)?.and_then(|bytes| bytes.try_into().ok());
        bytes.map(i32::from_be_bytes).ok_or(ProtocolError::ColumnType { column, expected: "integer" })
    }

    /// A `text`, `varchar` or `char(n)`, or any value in text format.
    #[inline]
    pub fn text(&self, column: usize) -> Result<&'a str, ProtocolError> {
        let wrong = ProtocolError::ColumnType { column, expected: "text" };
        let Some(bytes) = self.get(column)? else { return Err(wrong) };
        std::str::from_utf8(bytes).map_err(|_| wrong)
    }

    /// A `numeric` in hundredths. Fails if it has more nonzero decimals.
    #[inline]
    pub fn cents(&self, column: usize) -> Result<i64, ProtocolError> {
        let value = self.get(column)?.and_then(|bytes| numeric::read(bytes, 2));
        value.ok_or(ProtocolError::ColumnType { column, expected: "numeric" })
    }
}

/// Splits off the first value (`None` for NULL).
#[inline]
fn split_value(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    match i32::from_be_bytes(*length) {
        -1 => Some((None, rest)),
        length => {
            let (value, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            Some((Some(value), rest))
        }
    }
}
