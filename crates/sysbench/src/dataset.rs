//! The tables of the oltp_* scripts, made by COPY: the columns, keys, indexes and distributions of rows that their `prepare` makes.

use std::sync::LazyLock;

use serde::Deserialize;

use super::random::{Random, RandomOptions, Xoroshiro};
use driver::derive_seed;
use loader::dataset::{Dataset, Round, Rows, Table, Work};
use loader::format::format_of;
use loader::phase::Phase;
use loader::{LoadError, Replaceable, replace};
use pgwire::copy;
use reactor::Connection;

/// Tables at most: more than anybody has used.
const TABLES_MAX: u32 = 10_000;
/// Rows of a group: 100 kB.
const GROUP_ROWS: u64 = 500;
/// Bytes of a row with its keys.
const ROW_BYTES: u64 = 250;
/// Changes whenever the same specification makes other rows.
const ROWS_FORMAT: &str = "rows 1";

const C_PATTERN: &[u8] = b"###########-###########-###########-###########-###########-###########-###########-###########-###########-###########";
const PAD_PATTERN: &[u8] = b"###########-###########-###########-###########-###########";

const CREATE: &str = include_str!("dataset/create.sql");
const KEY: &str = include_str!("dataset/key.sql");
const SEQUENCE: &str = include_str!("dataset/sequence.sql");
const INDEX: &str = include_str!("dataset/index.sql");
const EXISTING: &str = include_str!("dataset/existing.sql");

/// The format of what a load makes: a digest.
pub static FORMAT: LazyLock<String> =
    LazyLock::new(|| format_of([CREATE, KEY, SEQUENCE, INDEX, ROWS_FORMAT].into_iter()));

/// What to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OltpTables {
    /// How many tables.
    pub tables: u32,
    /// Rows of each.
    pub table_size: u32,
    /// Whether the database numbers new rows.
    #[serde(default = "yes")]
    pub auto_inc: bool,
    /// Whether column k has an index.
    #[serde(default = "yes")]
    pub create_secondary: bool,
}

fn yes() -> bool {
    true
}

impl OltpTables {
    /// The problem of a number that is out of range.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let ranges = [("tables", self.tables, TABLES_MAX), ("table_size", self.table_size, i32::MAX as u32)];
        let wrong = ranges.into_iter().find(|(_, value, high)| !(1..=*high).contains(value));
        wrong.map(|(name, value, high)| format!("{name}: {value} is not between 1 and {high}"))
    }

    /// A statement of a table.
    fn sql(&self, text: &str, number: usize) -> String {
        let id_type = if self.auto_inc { "serial" } else { "integer" };
        let (number, size) = (number.to_string(), self.table_size.to_string());
        text.replace("{n}", &number).replace("{id_type}", id_type).replace("{size}", &size)
    }
}

/// The dataset.
pub struct OltpDataset {
    oltp: OltpTables,
    seed: u64,
    tables: Vec<Table>,
}

impl OltpDataset {
    /// Nothing is done yet.
    #[must_use]
    pub fn new(oltp: OltpTables, seed: u64) -> Self {
        let rows = u64::from(oltp.table_size);
        let table = |number: u32| Table {
            name: format!("sbtest{number}").into(),
            rows,
            bytes_estimated: rows * ROW_BYTES,
        };
        Self { oltp, seed, tables: (1..=oltp.tables).map(table).collect() }
    }
}

/// The rows of one table.
struct OltpRows {
    size: u32,
    seed: u64,
}

impl Rows for OltpRows {
    fn groups(&self) -> u64 {
        u64::from(self.size).div_ceil(GROUP_ROWS)
    }

    fn append(&self, group: u64, out: &mut Vec<u8>) -> u64 {
        let state = [derive_seed(self.seed, 2 * group), derive_seed(self.seed, 2 * group + 1)];
        let mut random = Random::new(Xoroshiro::new(state), RandomOptions::default(), 0);
        let first = group * GROUP_ROWS + 1;
        let last = (first + GROUP_ROWS - 1).min(u64::from(self.size));
        let mut text = Vec::with_capacity(C_PATTERN.len());
        for id in first..=last {
            copy::row(out, 4);
            copy::int4(out, id as i32);
            copy::int4(out, random.default(1, self.size) as i32);
            for pattern in [C_PATTERN, PAD_PATTERN] {
                text.clear();
                random.fill(pattern, &mut text);
                copy::text(out, &text);
            }
        }
        last + 1 - first
    }
}

impl Dataset for OltpDataset {
    fn tables(&self) -> &[Table] {
        &self.tables
    }

    async fn begin(&self, control: &mut Connection, existing: Replaceable) -> Result<(), LoadError> {
        let is_own = |name: &str| self.tables.iter().any(|table| table.name == name);
        replace::replace(control, existing, EXISTING, is_own).await
    }

    async fn round(&self, done: usize, _: &mut Connection) -> Result<Option<Round>, LoadError> {
        let oltp = &self.oltp;
        let copy = |table: usize| {
            let rows = OltpRows { size: oltp.table_size, seed: derive_seed(self.seed, table as u64 + 1) };
            Work::create_and_copy(&oltp.sql(CREATE, table + 1), &self.tables[table].name, "", Box::new(rows))
        };
        let parts = [(KEY, true), (SEQUENCE, oltp.auto_inc), (INDEX, oltp.create_secondary)];
        let indexes = |table: usize| {
            let wanted = parts.into_iter().filter(|(_, is_wanted)| *is_wanted);
            wanted.map(|(text, _)| oltp.sql(text, table + 1)).collect()
        };
        let phase = Phase::OF_NEW_TABLES.get(done);
        Ok(phase.map(|&phase| Round::of_new_tables(phase, &self.tables, copy, indexes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_hold_every_row_once_and_depend_on_the_seed_only() {
        let rows = |seed: u64| {
            let rows = OltpRows { size: 1234, seed };
            let mut out = Vec::new();
            let counts: Vec<_> = (0..rows.groups()).map(|group| rows.append(group, &mut out)).collect();
            (counts, out)
        };
        assert_eq!(rows(1).0, [500, 500, 234]);
        assert_eq!(rows(1), rows(1));
        assert_ne!(rows(1).1, rows(2).1);
    }

    #[test]
    fn numbers_outside_their_ranges_are_refused() {
        let oltp =
            |tables, table_size| OltpTables { tables, table_size, auto_inc: true, create_secondary: true };
        assert_eq!(oltp(1, 1).problem(), None);
        for (tables, table_size) in [(0, 1), (TABLES_MAX + 1, 1), (1, 0), (1, u32::MAX)] {
            assert!(oltp(tables, table_size).problem().is_some());
        }
    }
}
