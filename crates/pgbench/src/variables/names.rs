//! The names of variables, each with the slot that its values are kept in.

use std::collections::HashMap;

use thiserror::Error;

/// How many variables all scripts together can use: each client has a place for each.
pub const VARIABLES_MAX: usize = 10_000;

/// Where the values of a variable are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u32);

impl Slot {
    /// Its place among the client's variables.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// There are [`VARIABLES_MAX`] variables already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("too many variables (maximum is {VARIABLES_MAX})")]
pub struct TooManyVariables;

/// All names that scripts and options use. They are shared by all scripts and clients of a run.
#[derive(Clone, Debug, Default)]
pub struct Names {
    slots: HashMap<Box<[u8]>, Slot>,
    names: Vec<Box<[u8]>>,
}

impl Names {
    /// The slot of a name, a new one if the name is new. The name need not be valid: one that is not can be asked for,
    /// and is undefined, but see [`is_name`] for one that gets a value.
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

    /// The slot of a name that something uses.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<Slot> {
        self.slots.get(name).copied()
    }

    /// The name of a slot.
    #[must_use]
    pub fn get(&self, slot: Slot) -> &[u8] {
        self.names.get(slot.index()).map_or(&[], |name| name)
    }

    /// The name of a slot for a message.
    #[must_use]
    pub fn text(&self, slot: Slot) -> String {
        String::from_utf8_lossy(self.get(slot)).into_owned()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// Whether a byte can be in a name: a letter of any script, a digit, an underscore.
#[must_use]
pub fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// How many bytes of a text are a name; 0 where it begins with none. A name does not begin with a digit.
#[must_use]
pub fn name_length(text: &[u8]) -> usize {
    match text.first() {
        Some(byte) if is_name_byte(*byte) && !byte.is_ascii_digit() => {
            text.iter().take_while(|byte| is_name_byte(**byte)).count()
        }
        _ => 0,
    }
}

/// Whether a variable of this name can get a value.
#[must_use]
pub fn is_name(text: &[u8]) -> bool {
    !text.is_empty() && name_length(text) == text.len()
}
