//! What a load and a run are asked for.

use serde::Deserialize;

/// Most tables: each has at least one client.
const TABLES_MAX: u32 = 1000;
/// Most rows of a table: about 2 TB.
const ROWS_MAX: u64 = 10_000_000_000;
/// Most rows of a commit: a statement of about 1 MB.
const BATCH_MAX: u32 = 10_000;
/// Highest rate of a table, in rows per second.
const RATE_MAX: f64 = 1e7;

/// The data to load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InsertTables {
    /// Rows of each table.
    pub rows: u64,
    /// Number of tables.
    pub tables: u32,
    /// Whether the tables have their secondary indexes.
    pub indexes: bool,
}

impl InsertTables {
    /// The problem of a number that is out of range.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        if !(1..=TABLES_MAX).contains(&self.tables) {
            return Some(format!("tables: {} is not between 1 and {TABLES_MAX}", self.tables));
        }
        (self.rows > ROWS_MAX).then(|| format!("rows: {} is not between 0 and {ROWS_MAX}", self.rows))
    }
}

/// Queries of the third client of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Query {
    /// Ten rows of a secondary index, in its order.
    Range,
    /// Ten rows by primary key.
    Point,
}

/// The workload's part of the specification of a run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Specification {
    /// Number of tables. Each has one to three clients: one inserts, the second deletes, the third sends queries.
    pub tables: u32,
    /// Rows of a commit.
    pub batch: u32,
    /// Whether the first client creates the secondary indexes again and again, and inserts nothing.
    #[serde(default)]
    pub indexes: bool,
    /// Whether the second client deletes. Otherwise it is idle.
    #[serde(default)]
    pub deletes: bool,
    /// What the third client sends. Without it, that client is idle.
    pub query: Option<Query>,
    /// Rows to insert and to delete per table and second; as many as possible without it.
    pub rows_per_s: Option<f64>,
    /// The last step that the comment of the data must have; any without it.
    pub done: Option<String>,
}

impl Specification {
    /// The problem of a value that is out of range, for so many clients.
    pub fn problem(&self, clients: u32) -> Option<String> {
        let needed = if self.query.is_some() { 3 } else { 1 + u32::from(self.deletes) };
        let each = clients.checked_div(self.tables).unwrap_or(0);
        if !(1..=TABLES_MAX).contains(&self.tables) {
            Some(format!("tables: {} is not between 1 and {TABLES_MAX}", self.tables))
        } else if !(1..=BATCH_MAX).contains(&self.batch) {
            Some(format!("batch: {} is not between 1 and {BATCH_MAX}", self.batch))
        } else if self.rows_per_s.is_some_and(|rate| !(rate > 0.0 && rate <= RATE_MAX)) {
            Some(format!("rows_per_s: it is not above 0 and at most {RATE_MAX}"))
        } else if self.indexes && (self.deletes || self.query.is_some()) {
            Some("indexes: they are created without deletes and queries".to_owned())
        } else if each * self.tables != clients || !(needed..=3).contains(&each) {
            Some(format!("clients: {clients} are not {needed} to 3 for each of {} tables", self.tables))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn numbers_out_of_range_are_problems() {
        let tables = |rows, tables| InsertTables { rows, tables, indexes: true }.problem();
        assert_eq!((tables(0, 1), tables(ROWS_MAX, 1000)), (None, None));
        assert!(tables(1, 0).is_some_and(|why| why.starts_with("tables")));
        assert!(tables(ROWS_MAX + 1, 1).is_some_and(|why| why.starts_with("rows")));
    }

    #[test]
    fn each_table_has_as_many_clients_as_its_operations_need() {
        let problem =
            |given: &Value, clients: u32| Specification::deserialize(given).expect("keys").problem(clients);
        let load = json!({"tables": 2, "batch": 100});
        let queries = json!({"tables": 2, "batch": 50, "deletes": true, "query": "point", "rows_per_s": 100});
        for (given, clients, is_sound) in [
            (load.clone(), 2, true),
            (load.clone(), 6, true),
            (load.clone(), 8, false),
            (load, 3, false),
            (json!({"tables": 1, "batch": 5, "deletes": true}), 1, false),
            (queries.clone(), 6, true),
            (queries.clone(), 4, false),
            (json!({"tables": 1, "batch": 1, "indexes": true}), 1, true),
            (json!({"tables": 1, "batch": 1, "indexes": true, "deletes": true}), 2, false),
            (json!({"tables": 0, "batch": 5}), 3, false),
            (json!({"tables": 1, "batch": 0}), 3, false),
            (json!({"tables": 1, "batch": 5, "rows_per_s": 0}), 3, false),
        ] {
            assert_eq!(problem(&given, clients).is_none(), is_sound, "{given} {clients}");
        }
    }
}
