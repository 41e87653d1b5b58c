//! Variables: names are resolved to slots once, and each client has its values in the slots.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use thiserror::Error;

use super::value::{EvaluationError, IntError, Value, looks_like_int, parse_double, parse_int};

/// The variables of one client. A clone of others has the values of `-D`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Variables {
    cells: Vec<Cell>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Cell {
    content: Content,
    /// Kept for its capacity while `content` is a value.
    text: Vec<u8>,
}

/// A text is kept as given, even after conversion to a value: `+3` is not sent as `3`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Content {
    #[default]
    Undefined,
    Value(Value),
    Text,
    TextOf(Value),
}

impl Variables {
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

    /// The variable of a slot, which is made if it is new.
    fn cell(&mut self, slot: Slot) -> &mut Cell {
        if slot.index() >= self.cells.len() {
            self.cells.resize_with(slot.index() + 1, Cell::default);
        }
        &mut self.cells[slot.index()]
    }

    /// Whether the variable is defined.
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

/// Maximum number of variables of all scripts: each client stores all of them.
pub const VARIABLES_MAX: usize = 10_000;

/// Index of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u32);

impl Slot {
    /// Its index in a client's variables.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// There are already [`VARIABLES_MAX`] variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("too many variables (maximum is {VARIABLES_MAX})")]
pub struct TooManyVariables;

/// All names in scripts and options, shared by all clients of a run.
#[derive(Clone, Debug, Default)]
pub struct Names {
    slots: HashMap<Box<[u8]>, Slot>,
    names: Vec<Box<[u8]>>,
}

impl Names {
    /// Returns the slot of a name, which is added if it is new.
    ///
    /// The name may be invalid: such a variable can be read and is undefined. See [`is_name`] for variables to
    /// be set.
    pub fn intern(&mut self, name: &[u8]) -> Result<Slot, TooManyVariables> {
        if let Some(slot) = self.find(name) {
            return Ok(slot);
        }
        if self.names.len() >= VARIABLES_MAX {
            return Err(TooManyVariables);
        }
        let slot = Slot(self.names.len() as u32);
        self.slots.insert(name.into(), slot);
        self.names.push(name.into());
        Ok(slot)
    }

    /// The slot of an existing name.
    pub fn find(&self, name: &[u8]) -> Option<Slot> {
        self.slots.get(name).copied()
    }

    /// The name of a slot.
    pub fn get(&self, slot: Slot) -> &[u8] {
        self.names.get(slot.index()).map_or(&[], |name| name)
    }

    /// The name of a slot for a message.
    pub fn text(&self, slot: Slot) -> String {
        String::from_utf8_lossy(self.get(slot)).into_owned()
    }
}

/// Whether a byte is allowed in a name: a non-ASCII byte, a letter, a digit or an underscore.
pub fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// The length of the name at the start of a text; 0 without one. A name does not begin with a digit.
pub fn name_length(text: &[u8]) -> usize {
    match text.first() {
        Some(byte) if is_name_byte(*byte) && !byte.is_ascii_digit() => {
            text.iter().take_while(|byte| is_name_byte(**byte)).count()
        }
        _ => 0,
    }
}

/// Whether a variable with this name can be set.
pub fn is_name(text: &[u8]) -> bool {
    !text.is_empty() && name_length(text) == text.len()
}
