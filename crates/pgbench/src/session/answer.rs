//! Responses: skipped, or read for `\gset` and `\aset`.

use super::stop::Stop;
use crate::run::{Client, Columns};
use crate::script::sql::Store;
use crate::variables::{Names, Slot};
use pgwire::backend::{Message, Row};
use reactor::{Connection, Error, Seen};

/// Reads to the end of `count` responses. Rows are skipped. `query` counts statements.
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

/// Values of a response, kept until it is complete.
pub struct Answer {
    /// By number of the command.
    columns: Vec<Columns>,
    /// Values of the last row that a script uses, concatenated.
    text: Vec<u8>,
    /// The variable of each value, and the end of its text.
    values: Vec<(Slot, usize)>,
}

impl Answer {
    /// Creates the state for scripts with this number of SQL commands.
    #[must_use]
    pub fn new(statements: usize) -> Self {
        Self { columns: vec![Columns::default(); statements], text: Vec::new(), values: Vec::new() }
    }

    /// Reads the response of a command with `\gset` or `\aset` and stores its values. `query` counts
    /// statements.
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
        // The statement of a combined command whose response is being read.
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
            // As in pgbench, null becomes an empty text.
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
