//! Progress of a load: counters shared by its threads, and their events.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use serde_json::{Value, json};

use super::dataset::Table;
use super::phase::Phase;

/// Counters of a load. Tables are identified by index.
pub struct Progress {
    rows: Vec<AtomicU64>,
    bytes: AtomicU64,
    /// The current table.
    current: AtomicUsize,
    /// Tables whose rows are or may be committed, which a failed load must clean up.
    filled: Mutex<Vec<usize>>,
}

impl Progress {
    /// Creates counters for a number of tables.
    pub fn new(tables: usize) -> Self {
        Self {
            rows: (0..tables).map(|_| AtomicU64::new(0)).collect(),
            bytes: AtomicU64::new(0),
            current: AtomicUsize::new(0),
            filled: Mutex::default(),
        }
    }

    /// Counts rows copied into a table.
    pub fn copied(&self, table: usize, rows: u64, bytes: u64) {
        self.rows[table].fetch_add(rows, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.current.store(table, Relaxed);
    }

    /// Sets the number of rows of each table.
    pub fn holds(&self, rows: &[u64]) {
        for (counter, &rows) in self.rows.iter().zip(rows) {
            counter.store(rows, Relaxed);
        }
    }

    /// Sets the current table.
    pub fn begin(&self, table: usize) {
        self.current.store(table, Relaxed);
    }

    /// Records that rows of a table are about to be committed.
    pub fn filled(&self, table: usize) {
        if let Ok(mut filled) = self.filled.lock() {
            filled.push(table);
        }
    }

    /// Tables whose rows are or may be committed.
    pub fn tables_filled(&self) -> Vec<usize> {
        self.filled.lock().map(|filled| filled.clone()).unwrap_or_default()
    }

    /// Bytes of COPY data so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Rows by table.
    pub fn rows(&self, tables: &[Table]) -> Value {
        tables.iter().zip(&self.rows).map(|(table, rows)| (&*table.name, rows.load(Relaxed))).collect()
    }

    /// Creates the `progress` event.
    pub fn event(&self, phase: Phase, tables: &[Table]) -> Value {
        let rows: u64 = self.rows.iter().map(|rows| rows.load(Relaxed)).sum();
        let rows_total: u64 = tables.iter().map(|table| table.rows).sum();
        json!({
            "event": "progress",
            "phase": phase.name(),
            "table": tables[self.current.load(Relaxed)].name,
            "rows": rows,
            "rows_total": rows_total.max(rows),
            "rows_of": self.rows(tables),
        })
    }
}

/// Creates the `started` event with the expected tables.
pub fn forecast(tables: &[Table]) -> Value {
    let of_table = |table: &Table| {
        (table.name.to_string(), json!({"rows": table.rows, "bytes_estimated": table.bytes_estimated}))
    };
    json!({"event": "started", "tables": tables.iter().map(of_table).collect::<Value>()})
}
