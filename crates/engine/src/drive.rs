//! `pgdyno-engine drive`: the driver with the workloads of this engine.

use std::io::Write;
use std::sync::mpsc;

use driver::{AnyWorkload, Workload, WorkloadContext, WorkloadError, erase};
pub use driver::{End, Input};
use insert::InsertBenchmark;
use linkbench::LinkBench;
use pgbench::Pgbench;
use serde_json::Value;
use sysbench::Sysbench;
use tpcc::Tpcc;

use super::ledger::{Ledger, WithLedger};
use super::select_only::SelectOnly;

/// Runs the specification `text`. `inputs` are the two ends of the command channel.
pub fn run(text: &str, inputs: (mpsc::Sender<Input>, mpsc::Receiver<Input>), out: &mut dyn Write) -> End {
    driver::run(text, inputs, out, &read_workload)
}

fn read_workload(workload: &Value, context: WorkloadContext) -> Result<AnyWorkload, WorkloadError> {
    let WorkloadContext { clients, threads, seed } = context;
    let mut workload = workload.clone();
    let kind = take(&mut workload, "kind");
    let kind = kind.as_ref().and_then(Value::as_str);
    if kind == Some("ledger") {
        return Ledger::read(&workload).map(erase);
    }
    let ledger = take(&mut workload, "ledger");
    if ledger.is_some() && !matches!(kind, Some("tpcc" | "pgbench")) {
        return Err(WorkloadError::value("only tpcc and pgbench can have a ledger"));
    }
    let ledger = ledger.as_ref().map(Ledger::read).transpose()?;
    match kind {
        Some("select-only") => SelectOnly::read(&workload).map(erase),
        Some("tpcc") => Tpcc::read(&workload, seed).map(|w| with_ledger(w, ledger)),
        Some("pgbench") => Pgbench::read(&workload, clients, threads, seed).map(|w| with_ledger(w, ledger)),
        Some("sysbench") => Sysbench::read(&workload, clients, seed).map(erase),
        Some("linkbench") => LinkBench::read(&workload).map(erase),
        Some("insert") => InsertBenchmark::read(&workload, clients).map(erase),
        other => Err(WorkloadError::UnknownKind(other.unwrap_or("(none)").to_owned())),
    }
}

/// Takes a key that is not part of the workload's own specification.
pub(super) fn take(workload: &mut Value, key: &str) -> Option<Value> {
    workload.as_object_mut()?.remove(key)
}

fn with_ledger<W: Workload + 'static>(workload: W, ledger: Option<Ledger>) -> AnyWorkload {
    match ledger {
        Some(ledger) => erase(WithLedger::new(workload, ledger)),
        None => erase(workload),
    }
}
