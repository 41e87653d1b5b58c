//! Answers: read over, or read for what `\gset` and `\aset` store.

use super::stop::Stop;
use crate::run::{Client, Columns};
use crate::script::sql::Store;
use crate::variables::{Names, Slot};
use pgwire::backend::{Message, Row};
use reactor::{Connection, Error, Seen};

/// Reads to the end of so many answers. The rows are taken in and not looked at; `query` counts statements.
#[inline]
pub async fn read_over(
    connection: &mut Connection,
    mut answers: u32,
    query: &mut usize,
) -> Result<(), Error> {
    let mut seen = Seen::default();
    let mut outcome = Ok(());
    while answers > 0 && outcome.is_ok() {
        outcome = connection.read_over(&mut seen).await;
        answers -= 1;
    }
    *query = seen.statements;
    outcome
}

/// What is kept of an answer until it is known that it counts.
pub struct Answer {
    /// By the number of the command.
    columns: Vec<Columns>,
    /// The values of the last row that some script asks for, one behind the other.
    text: Vec<u8>,
    /// Where each goes, and where its text ends.
    values: Vec<(Slot, usize)>,
}

impl Answer {
    /// For scripts of so many commands of SQL.
    #[must_use]
    pub fn new(statements: usize) -> Self {
        Self { columns: vec![Columns::default(); statements], text: Vec::new(), values: Vec::new() }
    }

    /// Reads the answer of a command with `\gset` or `\aset` and stores what it asks for; `query` counts statements.
    pub async fn store(
        &mut self,
        connection: &mut Connection,
        client: &mut Client,
        names: &Names,
        number: usize,
        store: &Store,
        query: &mut usize,
    ) -> Result<(), Stop> {
        let Self { columns, text, values } = self;
        let columns = &mut columns[number];
        *query = 0;
        // Of the statement of a combined command whose answer is being read.
        let mut rows = 0;
        let mut last = None;
        let mut wrong_name = None;
        loop {
            match connection.next().await? {
                Message::RowDescription(fields) => {
                    rows = 0;
                    wrong_name = columns.slots(store, names, fields.iter().map(|field| field.name)).err();
                }
                Message::DataRow(row) => {
                    rows += 1;
                    keep(row, columns.known(), text, values);
                }
                Message::CommandComplete(_) | Message::EmptyQueryResponse => {
                    last = Some((*query, rows, wrong_name.take()));
                    if let (true, Some((query, 1.., name))) = (store.every, &last) {
                        if let Some(name) = name {
                            return Err(client.cannot_store(store, *query, name).into());
                        }
                        assign(client, text, values);
                    }
                    (rows, *query) = (0, *query + 1);
                }
                Message::ReadyForQuery(_) => break,
                _ => {}
            }
        }
        match last {
            _ if store.every => {}
            Some((query, 1, Some(name))) => return Err(client.cannot_store(store, query, &name).into()),
            Some((_, 1, None)) => assign(client, text, values),
            Some((query, rows, _)) => return Err(client.wrong_row_count(query, rows).into()),
            None => return Err(client.wrong_row_count(0, 0).into()),
        }
        Ok(())
    }
}

fn keep(row: Row<'_>, slots: &[Option<Slot>], text: &mut Vec<u8>, values: &mut Vec<(Slot, usize)>) {
    text.clear();
    values.clear();
    for (value, slot) in row.columns().zip(slots) {
        if let Some(slot) = slot {
            // As pgbench has it, null is an empty text.
            text.extend_from_slice(value.unwrap_or_default());
            values.push((*slot, text.len()));
        }
    }
}

fn assign(client: &mut Client, text: &[u8], values: &[(Slot, usize)]) {
    let mut start = 0;
    for &(slot, end) in values {
        client.variables.set_text(slot, &text[start..end]);
        start = end;
    }
}
