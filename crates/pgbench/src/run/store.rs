//! Storage of result values in variables: `\gset` and `\aset`.

use super::{Abort, Client};
use crate::script::sql::Store;
use crate::variables::{Names, Slot, is_name};

impl Store {
    /// Name of the command.
    #[must_use]
    pub fn word(&self) -> &'static str {
        if self.every { "aset" } else { "gset" }
    }
}

/// Variables of the columns of one statement, resolved once per set of columns.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// Names of the columns, each with a trailing zero byte.
    known: Vec<u8>,
    slots: Vec<Option<Slot>>,
}

impl Columns {
    /// The variable of each column; `None` for one that no script uses.
    ///
    /// The error is the complete name of the first invalid variable.
    pub fn slots<'a>(
        &mut self,
        store: &Store,
        names: &Names,
        columns: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Result<&[Option<Slot>], Vec<u8>> {
        if self.is_known(columns.clone()) {
            return Ok(&self.slots);
        }
        self.known.clear();
        self.slots.clear();
        for column in columns {
            let name = [&store.prefix, column].concat();
            if !is_name(&name) {
                self.known.clear();
                self.slots.clear();
                return Err(name);
            }
            self.known.extend_from_slice(column);
            self.known.push(0);
            self.slots.push(names.find(&name));
        }
        Ok(&self.slots)
    }

    /// The last result of [`Columns::slots`]; empty after an error.
    #[must_use]
    pub fn known(&self) -> &[Option<Slot>] {
        &self.slots
    }

    fn is_known<'a>(&self, columns: impl Iterator<Item = &'a [u8]>) -> bool {
        let mut rest = self.known.as_slice();
        for column in columns {
            let Some(after) = rest.strip_prefix(column).and_then(|rest| rest.strip_prefix(&[0])) else {
                return false;
            };
            rest = after;
        }
        rest.is_empty() && !self.known.is_empty()
    }
}

impl Client {
    /// The abort of `\gset` if a result does not have one row. `query` counts results of a combined command,
    /// from 0.
    #[must_use]
    pub fn wrong_row_count(&self, query: usize, rows: u64) -> Abort {
        let message = format!("{}: expected one row, got {rows}", self.answer(query));
        Abort { messages: vec![message] }
    }

    /// The abort for a column name that is not a valid variable name.
    #[must_use]
    pub fn cannot_store(&self, store: &Store, query: usize, name: &[u8]) -> Abort {
        let name = String::from_utf8_lossy(name);
        let messages = vec![
            format!("{}: invalid variable name: \"{name}\"", store.word()),
            format!("{}: error storing into variable {name}", self.answer(query)),
        ];
        Abort { messages }
    }

    fn answer(&self, query: usize) -> String {
        format!("client {} script {} command {} query {query}", self.id, self.script, self.command)
    }
}
