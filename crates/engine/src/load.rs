//! `pgdyno-engine load`: reads a specification and commands from standard input, writes events to standard
//! output.

use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use loader::{Emit, LoadError, LoadOptions, Stage, load};
use pgbench::initialise::PgbenchTables;
use pgwire::conninfo;
use reactor::catch_termination;
use serde_json::{Value, json};
use sysbench::dataset::OltpDataset;
use sysbench::prepare::ScriptData;
use tpcc::dataset::TpccTables;

mod specification;

pub use specification::{LoadSpecificationError, Specification, Workload};

/// Maximum length of a specification or command.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Runs the command. Exit status: 0 loaded, 1 failed, 2 invalid specification.
#[must_use]
pub fn command() -> ExitCode {
    match specified() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            emit(&error.event());
            ExitCode::from(if error.stage == Stage::Specification { 2 } else { 1 })
        }
    }
}

fn specified() -> Result<(), LoadError> {
    let stop = Arc::new(AtomicBool::new(false));
    let on_signal = Arc::clone(&stop);
    catch_termination(move || on_signal.store(true, Relaxed))
        .map_err(|error| LoadError::from_io(Stage::Specification, "catch signals", &error))?;
    let line = read_line().unwrap_or_default();
    let specification = Specification::read(&line)
        .map_err(|error| LoadError::new(Stage::Specification, error.to_string()))?;
    let ordered = Arc::clone(&stop);
    thread::spawn(move || {
        // The end of the input means that the parent process has exited.
        while read_line().is_some_and(|line| !is_stop(&line)) {}
        ordered.store(true, Relaxed);
    });
    run(&specification, &stop, &mut |event| {
        if !emit(&event) {
            stop.store(true, Relaxed);
        }
    })
}

/// Loads a dataset.
///
/// `emit` receives the events up to `result`. A failure is returned after cleaning up. Setting `stop` ends the
/// load as a failure.
pub fn run(specification: &Specification, stop: &AtomicBool, emit: Emit<'_>) -> Result<(), LoadError> {
    let conninfo = conninfo::load(&specification.conninfo)
        .map_err(|error| LoadError::new(Stage::Specification, error.to_string()))?;
    let (connections, existing) = (specification.connections, specification.replaceable());
    let order = LoadOptions { conninfo, connections, existing, on_notice: None };
    match &specification.workload {
        Workload::Tpcc { warehouses, deviations, table_sets } => {
            let tables = TpccTables::new(*warehouses, specification.seed, *deviations, *table_sets);
            load(&tables, &order, stop, emit)
        }
        Workload::Sysbench(oltp) => load(&OltpDataset::new(*oltp, specification.seed), &order, stop, emit),
        Workload::SysbenchScript(given) => {
            let mut given = given.clone();
            given.insert("kind".to_owned(), json!("sysbench"));
            let data = ScriptData::read(&Value::Object(given), specification.seed)
                .map_err(|error| LoadError::new(Stage::Specification, error.to_string()))?;
            data.load(&order.conninfo, stop, emit)
        }
        Workload::Pgbench(initialise) => load(&PgbenchTables::marked(initialise.clone()), &order, stop, emit),
    }
}

/// Reads the next line; `None` at the end of the input.
fn read_line() -> Option<String> {
    let mut line = Vec::new();
    let mut limited = io::Read::take(io::stdin().lock(), LINE_BYTES_MAX);
    let length = limited.read_until(b'\n', &mut line).ok()?;
    (length > 0).then(|| String::from_utf8_lossy(&line).into_owned())
}

fn is_stop(line: &str) -> bool {
    serde_json::from_str::<Value>(line).is_ok_and(|order| order == json!({"do": "stop"}))
}

/// Writes one event. Returns `false` if nobody reads.
fn emit(event: &Value) -> bool {
    let mut out = io::stdout().lock();
    writeln!(out, "{event}").and_then(|()| out.flush()).is_ok()
}
