//! Variables: names are resolved to slots once, and each client has its values in the slots.

mod names;

#[cfg(test)]
mod tests;

pub use names::{Names, Slot, TooManyVariables, VARIABLES_MAX, is_name, is_name_byte, name_length};

use serde::{Deserialize, Serialize};

use crate::value::Value;
use crate::value::error::EvaluationError;
use crate::value::parse::{IntError, looks_like_int, parse_double, parse_int};

/// The variables of one client. Copying those of another client sets the values of `-D`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Variables {
    cells: Vec<Cell>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Cell {
    content: Content,
    /// Kept for its capacity while `content` is a value.
    text: Vec<u8>,
}

/// A text is kept as given, even after conversion to a value: `+3` is not sent as `3`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
enum Content {
    #[default]
    Undefined,
    Value(Value),
    Text,
    TextOf(Value),
}

impl Variables {
    /// Creates one undefined variable per name.
    #[must_use]
    pub fn new(names: &Names) -> Self {
        Self { cells: vec![Cell::default(); names.len()] }
    }

    /// Copies the values of another client with the same names. Does not allocate once texts have their
    /// capacity.
    pub fn copy_from(&mut self, other: &Self) {
        self.cells.resize_with(other.cells.len(), Cell::default);
        for (mine, theirs) in self.cells.iter_mut().zip(&other.cells) {
            mine.content = theirs.content;
            mine.text.clear();
            if matches!(theirs.content, Content::Text | Content::TextOf(_)) {
                mine.text.extend_from_slice(&theirs.text);
            }
        }
    }

    /// Sets a variable to a value, as `\set` does.
    #[inline]
    pub fn set(&mut self, slot: Slot, value: Value) {
        self.cell(slot).content = Content::Value(value);
    }

    /// Sets a variable to a text, as `-D`, `\gset` and `\aset` do. It is converted when its value is read.
    pub fn set_text(&mut self, slot: Slot, text: &[u8]) {
        let cell = self.cell(slot);
        cell.text.clear();
        cell.text.extend_from_slice(text);
        cell.content = Content::Text;
    }

    /// The variable of a slot. Names may have been added after the variables were created.
    fn cell(&mut self, slot: Slot) -> &mut Cell {
        if slot.index() >= self.cells.len() {
            self.cells.resize_with(slot.index() + 1, Cell::default);
        }
        &mut self.cells[slot.index()]
    }

    /// Whether the variable is defined.
    #[must_use]
    pub fn is_defined(&self, slot: Slot) -> bool {
        self.cells.get(slot.index()).is_some_and(|cell| cell.content != Content::Undefined)
    }

    /// The value for an expression. A text is converted on first use.
    #[inline]
    pub fn value(&mut self, slot: Slot, names: &Names) -> Result<Value, EvaluationError> {
        match self.cells.get(slot.index()).map(|cell| cell.content) {
            Some(Content::Value(value) | Content::TextOf(value)) => Ok(value),
            Some(Content::Text) => {
                let cell = &mut self.cells[slot.index()];
                let value = convert(&cell.text, || names.text(slot))?;
                cell.content = Content::TextOf(value);
                Ok(value)
            }
            Some(Content::Undefined) | None => Err(EvaluationError::Undefined(names.text(slot))),
        }
    }

    /// Appends the text for SQL and shell commands. Returns false and appends nothing if the variable is
    /// undefined.
    #[inline]
    #[must_use]
    pub fn write_text(&self, slot: Slot, out: &mut Vec<u8>) -> bool {
        let Some(cell) = self.cells.get(slot.index()) else { return false };
        match cell.content {
            Content::Undefined => return false,
            Content::Value(value) => value.write_text(out),
            Content::Text | Content::TextOf(_) => out.extend_from_slice(&cell.text),
        }
        true
    }
}

/// Converts a text: null, booleans and their abbreviations, an integer, else a double.
fn convert(text: &[u8], name: impl Fn() -> String) -> Result<Value, EvaluationError> {
    let shown = || String::from_utf8_lossy(text).into_owned();
    if text.is_empty() {
        return Err(EvaluationError::Empty);
    }
    if let Some(value) = word(text) {
        return Ok(value);
    }
    if looks_like_int(text) {
        return match parse_int(text) {
            Ok(int) => Ok(Value::Int(int)),
            Err(IntError::Range) => Err(EvaluationError::IntTooLarge(shown())),
            Err(IntError::Syntax) => Err(EvaluationError::IntSyntax(shown())),
        };
    }
    match parse_double(text) {
        Some(double) => Ok(Value::Double(double)),
        None => Err(EvaluationError::Malformed { name: name(), text: shown() }),
    }
}

/// Parses `null`; `true`, `yes`, `false`, `no` and their prefixes; `on`, `off` and `of`, but not the ambiguous
/// `o`.
fn word(text: &[u8]) -> Option<Value> {
    let is = |word: &str| text.eq_ignore_ascii_case(word.as_bytes());
    let begins =
        |word: &str| word.as_bytes().get(..text.len()).is_some_and(|start| start.eq_ignore_ascii_case(text));
    if is("null") {
        Some(Value::Null)
    } else if begins("true") || begins("yes") || is("on") {
        Some(Value::Boolean(true))
    } else if begins("false") || begins("no") || is("off") || is("of") {
        Some(Value::Boolean(false))
    } else {
        None
    }
}
