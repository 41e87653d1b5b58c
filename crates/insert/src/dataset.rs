//! The tables of the insert benchmark, made by COPY in the order of the primary key.

use std::sync::LazyLock;

use super::specification::InsertTables;
use super::values::Item;
use driver::{Stream, derive_seed};
use loader::dataset::{Dataset, Round, Rows, Table, Work};
use loader::format::format_of;
use loader::phase::Phase;
use loader::replace::{self, MARK};
use loader::{LoadError, Replaceable};
use pgwire::copy;
use reactor::Connection;

/// Changes whenever the same specification makes other rows.
const ROWS_FORMAT: &str = "rows 2";
/// Rows of a group: about 80 kB.
const GROUP_ROWS: u64 = 1000;
/// Bytes of a row, and of its entries in the primary key and the three other indexes.
const ROW_BYTES: u64 = 88;
const KEY_BYTES: u64 = 22;
const INDEX_BYTES: u64 = 88;
/// The time of the last loaded row, 2026-01-01, in seconds since 2000. With the time of the load, equal loads would
/// differ.
const LOADED_S: i64 = 820_540_800;
/// Loaded rows of a second.
const ROWS_PER_S: u64 = 10_000;

const EXISTING: &str = include_str!("sql/existing.sql");
const CREATE: &str = include_str!("sql/create_table.sql");
const PRIMARY_KEY: &str = include_str!("sql/primary_key.sql");
const SEQUENCE: &str = include_str!("sql/sequence.sql");
/// The secondary indexes by the ends of their names.
pub const INDEXES: [(&str, &str); 3] = [
    ("marketsegment", include_str!("sql/market_segment.sql")),
    ("registersegment", include_str!("sql/register_segment.sql")),
    ("pdc", include_str!("sql/price_date_customer.sql")),
];
const COLUMNS: &str = "(transactionid, dateandtime, cashregisterid, customerid, productid, price, data)";

/// The format of what a load makes: a digest.
pub static FORMAT: LazyLock<String> = LazyLock::new(|| {
    let indexes = INDEXES.map(|(_, sql)| sql);
    format_of([CREATE, PRIMARY_KEY, SEQUENCE].into_iter().chain(indexes).chain([ROWS_FORMAT]))
});

/// The name of a table, from 0.
pub fn table_name(table: u32) -> String {
    format!("pi{}", table + 1)
}

/// The dataset.
pub struct InsertDataset {
    asked: InsertTables,
    seed: u64,
    tables: Vec<Table>,
}

impl InsertDataset {
    /// Nothing is done yet.
    #[must_use]
    pub fn new(asked: InsertTables, seed: u64) -> Self {
        let of_row = ROW_BYTES + KEY_BYTES + if asked.indexes { INDEX_BYTES } else { 0 };
        let foretold = |table: u32| Table {
            name: table_name(table).into(),
            rows: asked.rows,
            bytes_estimated: asked.rows * of_row,
        };
        Self { asked, seed, tables: (0..asked.tables).map(foretold).collect() }
    }

    fn rows(&self, table: usize) -> TableRows {
        TableRows { rows: self.asked.rows, seed: derive_seed(self.seed, table as u64) }
    }

    fn indexes(&self, table: &str) -> Vec<String> {
        let sequence = SEQUENCE.replace("{next}", &(self.asked.rows + 1).to_string());
        let indexes = if self.asked.indexes { &INDEXES[..] } else { &[] };
        let all = [PRIMARY_KEY, &sequence].into_iter().chain(indexes.iter().map(|(_, sql)| *sql));
        all.map(|sql| sql.replace("{table}", table)).collect()
    }
}

/// The rows of one table.
struct TableRows {
    rows: u64,
    seed: u64,
}

impl Rows for TableRows {
    fn groups(&self) -> u64 {
        // A table without rows has an empty group, because a COPY has a header.
        self.rows.div_ceil(GROUP_ROWS).max(1)
    }

    fn append(&self, group: u64, out: &mut Vec<u8>) -> u64 {
        let mut stream = Stream::new(derive_seed(self.seed, group));
        let rows = group * GROUP_ROWS..((group + 1) * GROUP_ROWS).min(self.rows);
        for row in rows.clone() {
            let item = Item::draw(&mut stream);
            let time_s = LOADED_S - ((self.rows - 1 - row) / ROWS_PER_S) as i64;
            copy::row(out, 7);
            copy::int8(out, row as i64 + 1);
            copy::timestamptz(out, time_s * 1_000_000); // The form of a timestamp is the same.
            for number in [item.cash_register, item.customer, item.product, item.price] {
                copy::int4(out, number as i32);
            }
            copy::text(out, item.data());
        }
        rows.end.saturating_sub(rows.start)
    }
}

impl Dataset for InsertDataset {
    fn tables(&self) -> &[Table] {
        &self.tables
    }

    async fn begin(&self, control: &mut Connection, existing: Replaceable) -> Result<(), LoadError> {
        replace::replace(control, existing, EXISTING, |_| true).await
    }

    async fn round(&self, done: usize, _: &mut Connection) -> Result<Option<Round>, LoadError> {
        let copy = |table: usize| {
            let name = &self.tables[table].name;
            let create = CREATE.replace("{table}", name);
            Work::create_and_copy(&create, name, COLUMNS, Box::new(self.rows(table)))
        };
        let indexes = |table: usize| self.indexes(&self.tables[table].name);
        let phase = Phase::OF_NEW_TABLES.get(done);
        Ok(phase.map(|&phase| Round::of_new_tables(phase, &self.tables, copy, indexes)))
    }

    async fn finish(&self, control: &mut Connection) -> Result<(), LoadError> {
        let InsertTables { rows, tables, indexes } = self.asked;
        let (loaded, format) = (if rows == 0 { "none" } else { "l.i0" }, &*FORMAT);
        let done = if indexes { "l.x" } else { loaded };
        let comment = format!("{MARK}: insert queues={tables} rows={rows} done={done} format={format}");
        replace::mark_complete(control, "pi1", &comment).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(asked: InsertTables, seed: u64, table: usize) -> (u64, Vec<u8>) {
        let (rows, mut out) = (InsertDataset::new(asked, seed).rows(table), Vec::new());
        ((0..rows.groups()).map(|group| rows.append(group, &mut out)).sum(), out)
    }

    #[test]
    fn rows_depend_on_seed_and_table_only() {
        let asked = InsertTables { rows: 2500, tables: 2, indexes: true };
        assert_eq!(rows(asked, 7, 0), rows(InsertTables { tables: 1, indexes: false, ..asked }, 7, 0));
        assert_eq!(rows(asked, 7, 0).0, 2500);
        assert_ne!(rows(asked, 7, 0).1, rows(asked, 8, 0).1);
        assert_ne!(rows(asked, 7, 0).1, rows(asked, 7, 1).1);
    }

    #[test]
    fn a_table_without_rows_is_copied_as_nothing() {
        assert_eq!(rows(InsertTables { rows: 0, tables: 1, indexes: false }, 7, 0), (0, Vec::new()));
    }
}
