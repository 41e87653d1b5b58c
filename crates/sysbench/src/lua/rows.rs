//! Rows of a result that a script fetches.

use mlua::{Lua, Table, UserData, UserDataMethods, Value};
use pgwire::backend::Row;

/// Rows as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// All values, one after another.
    bytes: Vec<u8>,
    /// By value: where it ends; `None` is NULL.
    ends: Vec<Option<usize>>,
    columns: usize,
}

impl Rows {
    /// Adds a row.
    pub fn push(&mut self, row: &Row<'_>) {
        self.columns = row.len();
        for value in row.columns() {
            self.bytes.extend_from_slice(value.unwrap_or_default());
            self.ends.push(value.map(|_| self.bytes.len()));
        }
    }

    /// The bytes that it holds.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<Option<usize>>()
    }

    /// The values of a row, from 0.
    fn row(&self, row: usize) -> impl Iterator<Item = Option<&[u8]>> {
        let first = (row * self.columns).min(self.ends.len());
        let ends = &self.ends[first..(first + self.columns).min(self.ends.len())];
        let mut start = self.ends[..first].iter().rev().find_map(|end| *end).unwrap_or(0);
        ends.iter().map(move |end| {
            let from = start;
            start = end.unwrap_or(start);
            end.map(|end| &self.bytes[from..end])
        })
    }
}

impl UserData for Rows {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("row", |lua: &Lua, rows, row: usize| {
            let table = lua.create_table_with_capacity(rows.columns, 0)?;
            for (column, value) in rows.row(row.saturating_sub(1)).enumerate() {
                if let Some(value) = value {
                    table.raw_set(column + 1, lua.create_string(value)?)?;
                }
            }
            Ok::<Table, mlua::Error>(table)
        });
        methods.add_method_mut("free", |_, rows, ()| {
            *rows = Self::default();
            Ok(Value::Nil)
        });
    }
}
