//! What a load has done so far: counters that its threads share, and the events made of them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use serde_json::{Map, Value, json};

use super::phase::Phase;
use crate::tpcc::population::{Population, TABLES, Table};

/// Counters of one load. They only ever grow, so relaxed order is enough.
#[derive(Default)]
pub struct Progress {
    rows: [AtomicU64; TABLES.len()],
    bytes: AtomicU64,
    /// Index in [`TABLES`] of the table that was worked on last.
    current: AtomicUsize,
    /// The tables created and committed: what a failing load has to drop.
    created: Mutex<Vec<Table>>,
}

impl Progress {
    /// Counts rows copied into `table`.
    pub fn copied(&self, table: Table, rows: u64, bytes: u64) {
        let index = index_of(table);
        self.rows[index].fetch_add(rows, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.current.store(index, Relaxed);
    }

    /// Notes which table is being worked on.
    pub fn begin(&self, table: Table) {
        self.current.store(index_of(table), Relaxed);
    }

    /// Notes that `table` is there to stay.
    pub fn created(&self, table: Table) {
        if let Ok(mut created) = self.created.lock() {
            created.push(table);
        }
    }

    /// The tables that are there to stay.
    pub fn tables_created(&self) -> Vec<Table> {
        self.created.lock().map(|created| created.clone()).unwrap_or_default()
    }

    /// Bytes of COPY data so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Rows by table.
    pub fn rows(&self) -> Value {
        let count = |(index, table): (usize, &Table)| {
            (table.name().to_owned(), Value::from(self.rows[index].load(Relaxed)))
        };
        Value::Object(TABLES.iter().enumerate().map(count).collect::<Map<_, _>>())
    }

    /// The event `progress`.
    pub fn event(&self, phase: Phase, population: &Population) -> Value {
        let rows: u64 = self.rows.iter().map(|rows| rows.load(Relaxed)).sum();
        let rows_total: u64 = TABLES.iter().map(|&table| population.rows_estimated(table)).sum();
        let bytes = self.bytes();
        // COPY's own bytes in all: what a row had so far, times the rows. The estimate of `started` is of the disk.
        let bytes_total =
            if rows == 0 { 0.0 } else { bytes as f64 / rows as f64 * rows_total.max(rows) as f64 };
        json!({
            "event": "progress",
            "phase": phase.name(),
            "table": TABLES[self.current.load(Relaxed)].name(),
            "rows": rows,
            "rows_total": rows_total.max(rows),
            "bytes": bytes,
            "bytes_total": bytes_total as u64,
        })
    }
}

/// The event `started`: what the load will make.
pub fn forecast(population: &Population) -> Value {
    let of_table = |table: &Table| {
        let rows = population.rows_estimated(*table);
        (table.name().to_owned(), json!({"rows": rows, "bytes_estimated": table.bytes_estimated(rows)}))
    };
    json!({"event": "started", "tables": TABLES.iter().map(of_table).collect::<Map<_, _>>()})
}

fn index_of(table: Table) -> usize {
    TABLES.iter().position(|&other| other == table).unwrap_or(0)
}
