//! Names of variables and their slots.

use std::collections::HashMap;

use thiserror::Error;

/// Maximum number of variables of all scripts: each client stores all of them.
pub const VARIABLES_MAX: usize = 10_000;

/// Index of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u32);

impl Slot {
    /// Its index in a client's variables.
    #[must_use]
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

    /// Number of names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are no names.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// Whether a byte is allowed in a name: a non-ASCII byte, a letter, a digit or an underscore.
#[must_use]
pub fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// The length of the name at the start of a text; 0 without one. A name does not begin with a digit.
#[must_use]
pub fn name_length(text: &[u8]) -> usize {
    match text.first() {
        Some(byte) if is_name_byte(*byte) && !byte.is_ascii_digit() => {
            text.iter().take_while(|byte| is_name_byte(**byte)).count()
        }
        _ => 0,
    }
}

/// Whether a variable with this name can be set.
#[must_use]
pub fn is_name(text: &[u8]) -> bool {
    !text.is_empty() && name_length(text) == text.len()
}
