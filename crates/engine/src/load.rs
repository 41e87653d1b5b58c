//! `pgdyno-engine load`: reads a specification and commands, writes events.

use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use driver::SpecificationError;
use insert::{InsertDataset, InsertTables};
use linkbench::{LinkBenchDataset, LinkBenchTables};
use loader::{Emit, LoadError, LoadOptions, Replaceable, Stage, load};
use pgbench::initialise::{Initialise, PgbenchTables};
use pgwire::conninfo::Conninfo;
use reactor::catch_termination;
use serde::Deserialize;
use serde_json::{Value, json};
use sysbench::{OltpDataset, OltpTables, ScriptData};
use tpcc::{Deviation, Deviations, SYSBENCH_WAREHOUSES_MAX, TpccTables};

/// Maximum length of a command.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Runs the command. Exit status: 0 loaded, 1 failed, 2 invalid specification.
pub fn command(input: impl BufRead + Send + 'static, out: &mut dyn Write) -> ExitCode {
    match specified(input, out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            emit(out, &error.event());
            ExitCode::from(if error.stage == Stage::Specification { 2 } else { 1 })
        }
    }
}

fn specified(mut input: impl BufRead + Send + 'static, out: &mut dyn Write) -> Result<(), LoadError> {
    let stop = Arc::new(AtomicBool::new(false));
    let on_signal = Arc::clone(&stop);
    catch_termination(move || on_signal.store(true, Relaxed))
        .map_err(|error| LoadError::from_io(Stage::Specification, "catch signals", &error))?;
    let invalid = |why: String| LoadError::new(Stage::Specification, why);
    let mut line = String::new();
    let read = input.read_line(&mut line);
    read.map_err(|error| invalid(format!("cannot read the specification: {error}")))?;
    let specification = Specification::read(&line).map_err(|error| invalid(error.to_string()))?;
    let ordered = Arc::clone(&stop);
    let started = thread::Builder::new().spawn(move || {
        // The end of the input means that the parent process has exited.
        while read_command(&mut input).is_some_and(|line| !is_stop(&line)) {}
        ordered.store(true, Relaxed);
    });
    started.map_err(|error| LoadError::new(Stage::Connect, format!("cannot start a thread: {error}")))?;
    run(&specification, &stop, &mut |event| {
        if !emit(out, &event) {
            stop.store(true, Relaxed);
        }
    })
}

/// Loads a dataset.
///
/// `emit` receives the events up to `result`. A failure is returned after cleaning up. Setting `stop` ends the
/// load as a failure.
pub fn run(specification: &Specification, stop: &AtomicBool, emit: Emit<'_>) -> Result<(), LoadError> {
    let conninfo = specification.conninfo.clone();
    let (connections, existing) = (specification.connections, specification.replaceable());
    let Specification { vacuum_connections, server_settings, .. } = *specification;
    let order =
        LoadOptions { conninfo, connections, vacuum_connections, server_settings, existing, on_notice: None };
    match &specification.workload {
        Workload::Tpcc { warehouses, deviations, table_sets, hammerdb_routines } => {
            let tables = TpccTables::new(*warehouses, specification.seed, *deviations, *table_sets);
            let tables = tables.with_hammerdb_routines(*hammerdb_routines);
            load(&tables, &order, stop, emit)
        }
        Workload::Sysbench(oltp) => load(&OltpDataset::new(*oltp, specification.seed), &order, stop, emit),
        Workload::Linkbench(tables) => {
            load(&LinkBenchDataset::new(*tables, specification.seed), &order, stop, emit)
        }
        Workload::Insert(tables) => {
            load(&InsertDataset::new(*tables, specification.seed), &order, stop, emit)
        }
        Workload::SysbenchScript(given) => {
            let data = ScriptData::read(given, specification.seed)
                .map_err(|error| LoadError::new(Stage::Specification, error.to_string()))?;
            data.load(&order.conninfo, stop, emit)
        }
        Workload::Pgbench(initialise) => load(&PgbenchTables::marked(initialise.clone()), &order, stop, emit),
    }
}

/// Reads the next command; `None` at the end of the input.
fn read_command(input: &mut impl BufRead) -> Option<String> {
    let mut line = Vec::new();
    let mut limited = io::Read::take(input, LINE_BYTES_MAX);
    let length = limited.read_until(b'\n', &mut line).ok()?;
    (length > 0).then(|| String::from_utf8_lossy(&line).into_owned())
}

fn is_stop(line: &str) -> bool {
    serde_json::from_str::<Value>(line).is_ok_and(|order| order == json!({"do": "stop"}))
}

/// Writes one event. Returns `false` if nobody reads.
fn emit(out: &mut dyn Write, event: &Value) -> bool {
    writeln!(out, "{event}").and_then(|()| out.flush()).is_ok()
}

/// Maximum number of warehouses: row identifiers must fit in `integer`.
pub const WAREHOUSES_MAX: u32 = 100_000;

/// Dataset and server of a load.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Specification {
    /// Connection parameters.
    pub conninfo: Conninfo,
    /// Dataset.
    pub workload: Workload,
    /// Seed of the population.
    pub seed: u64,
    /// Number of connections, each with its own thread. Connections that can never have a job are not opened.
    pub connections: u32,
    /// Number of connections that run VACUUM and ANALYZE; without it as many as load.
    pub vacuum_connections: Option<u32>,
    /// Whether the server's settings for memory and commits apply, because the duration of the load is measured.
    #[serde(default)]
    pub server_settings: bool,
    /// Whether tables of an earlier load by pgdyno may be replaced.
    pub into_existing: bool,
    /// With `into_existing`: whether any existing pgbench tables may be replaced.
    #[serde(default)]
    pub replace: bool,
}

/// A workload with its scale.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Workload {
    /// Derived from TPC-C.
    Tpcc {
        /// 1..=[`WAREHOUSES_MAX`].
        warehouses: u32,
        /// Those of the data count.
        #[serde(default)]
        deviations: Deviations,
        /// Sets of tables, at most one per warehouse; more than one only of sysbench-tpcc.
        #[serde(default = "one")]
        table_sets: u32,
        /// Routines that HammerDB calls, under these deviations.
        hammerdb_routines: Option<Deviations>,
    },
    /// pgbench's tables.
    Pgbench(Initialise),
    /// Tables of sysbench's oltp scripts.
    Sysbench(OltpTables),
    /// Tables of LinkBench.
    Linkbench(LinkBenchTables),
    /// Tables of the insert benchmark.
    Insert(InsertTables),
    /// Prepare command of a sysbench script: the keys of a drive with it, and `threads`.
    #[serde(rename = "sysbench-script")]
    SysbenchScript(Value),
}

fn one() -> u32 {
    1
}

impl Workload {
    fn problem(&self) -> Option<String> {
        match self {
            Self::Tpcc { warehouses, .. } if !(1..=WAREHOUSES_MAX).contains(warehouses) => {
                Some(format!("warehouses: {warehouses} is not between 1 and {WAREHOUSES_MAX}"))
            }
            Self::Tpcc { warehouses, deviations, table_sets, hammerdb_routines } => {
                let is_sysbench = deviations.has(Deviation::SysbenchSql);
                let sets_max = if is_sysbench { *warehouses } else { 1 };
                if !(1..=sets_max).contains(table_sets) {
                    return Some(format!("table_sets: {table_sets} is not between 1 and {sets_max}"));
                }
                if is_sysbench && hammerdb_routines.is_some() {
                    return Some("hammerdb_routines: they do not fit the tables of sysbench-sql".to_owned());
                }
                let is_large = is_sysbench && warehouses.div_ceil(*table_sets) > SYSBENCH_WAREHOUSES_MAX;
                let problem = "table_sets: more sets are needed, of at most";
                is_large.then(|| format!("{problem} {SYSBENCH_WAREHOUSES_MAX} warehouses each"))
            }
            Self::Pgbench(initialise) => initialise.problem(),
            Self::Sysbench(oltp) => oltp.problem(),
            Self::Linkbench(tables) => tables.problem(),
            Self::Insert(tables) => tables.problem(),
            // The script is checked when it runs.
            Self::SysbenchScript(_) => None,
        }
    }
}

impl Specification {
    /// Reads and validates a specification.
    pub fn read(text: &str) -> Result<Self, SpecificationError> {
        let read: Self = serde_json::from_value(serde_json::from_str(text)?)?;
        match read.problem() {
            Some(problem) => Err(SpecificationError::Value { problem }),
            None => Ok(read),
        }
    }

    fn problem(&self) -> Option<String> {
        if self.connections == 0 {
            return Some("connections: at least 1 is needed".to_owned());
        }
        if self.vacuum_connections == Some(0) {
            return Some("vacuum_connections: at least 1 is needed".to_owned());
        }
        if self.replace && !(self.into_existing && matches!(self.workload, Workload::Pgbench(_))) {
            return Some("replace: needs into_existing and the workload pgbench".to_owned());
        }
        self.workload.problem()
    }

    /// Existing tables that the load may replace.
    #[must_use]
    pub fn replaceable(&self) -> Replaceable {
        match (self.into_existing, self.replace) {
            (false, _) => Replaceable::Nothing,
            (true, false) => Replaceable::Marked,
            (true, true) => Replaceable::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_valid_specification_is_read() {
        let text = json!({"conninfo": {"host": "/tmp", "user": "u"}, "workload": {"kind": "tpcc", "warehouses": 3}, "seed": 1,
            "connections": 2, "into_existing": false});
        let read = Specification::read(&text.to_string()).expect("sound");
        let deviations = Deviations::default();
        let due = Workload::Tpcc { warehouses: 3, deviations, table_sets: 1, hammerdb_routines: None };
        assert_eq!(read.workload, due);
    }

    #[test]
    fn sets_of_tables_are_at_most_the_warehouses_and_only_of_sysbench_tpcc() {
        let read = |deviations: &[&str], table_sets: u32| {
            let workload =
                json!({"kind": "tpcc", "warehouses": 3, "deviations": deviations, "table_sets": table_sets});
            let text = json!({"conninfo": {"user": "u"}, "workload": workload, "seed": 1, "connections": 1,
                "into_existing": false});
            Specification::read(&text.to_string()).map_err(|error| error.to_string())
        };
        assert!(read(&["sysbench-sql"], 3).is_ok());
        let large = json!({"conninfo": {"user": "u"}, "seed": 1, "connections": 1, "into_existing": false,
            "workload": {"kind": "tpcc", "warehouses": 70_000, "deviations": ["sysbench-sql"], "table_sets": 2}});
        assert!(
            Specification::read(&large.to_string()).expect_err("too many").to_string().contains("more sets")
        );
        for (deviations, sets) in [(&["sysbench-sql"][..], 4), (&["sysbench-sql"], 0), (&[], 2)] {
            assert!(read(deviations, sets).expect_err("out of range").contains("table_sets"));
        }
    }

    #[test]
    fn replace_is_only_valid_for_pgbench_tables_in_an_existing_database() {
        let read = |workload: Value, into_existing: bool| {
            let text = json!({"conninfo": {"user": "u"}, "workload": workload, "seed": 1, "connections": 1,
                "into_existing": into_existing, "replace": true});
            Specification::read(&text.to_string()).map(|read| read.replaceable())
        };
        let pgbench = || json!({"kind": "pgbench", "scale": 1});
        assert_eq!(read(pgbench(), true).expect("sound"), Replaceable::All);
        assert!(read(pgbench(), false).expect_err("a new database").to_string().contains("replace"));
        let tpcc = json!({"kind": "tpcc", "warehouses": 1});
        assert!(read(tpcc, true).expect_err("tpcc").to_string().contains("replace"));
    }

    #[test]
    fn vacuum_needs_a_connection() {
        let text = json!({"conninfo": {"user": "u"}, "workload": {"kind": "tpcc", "warehouses": 1}, "seed": 1,
            "connections": 1, "vacuum_connections": 0, "into_existing": false});
        let problem = Specification::read(&text.to_string()).expect_err("no connection").to_string();
        assert!(problem.contains("vacuum_connections"), "{problem}");
    }

    #[test]
    fn an_invalid_specification_is_rejected_with_its_problem() {
        let cases = [
            (json!({"kind": "tpcc", "warehouses": 0}), 1, "warehouses"),
            (json!({"kind": "tpcc", "warehouses": 100_001}), 1, "warehouses"),
            (
                json!({"kind": "tpcc", "warehouses": 1, "deviations": ["sysbench-sql"], "hammerdb_routines": []}),
                1,
                "hammerdb_routines",
            ),
            (json!({"kind": "tpcc", "warehouses": -1}), 1, "invalid value"),
            (json!({"kind": "tpcc", "warehouses": 1, "more": 1}), 1, "more"),
            (json!({"kind": "tpch"}), 1, "tpch"),
            (json!({"kind": "tpcc", "warehouses": 1}), 0, "connections"),
            (json!({"kind": "pgbench", "scale": 1, "more": 1}), 1, "more"),
            (json!({"kind": "pgbench", "scale": 0}), 1, "scale"),
            (json!({"kind": "linkbench", "nodes": 99}), 1, "nodes"),
            (json!({"kind": "insert", "rows": 5, "tables": 0, "indexes": true}), 1, "tables"),
            (json!({"kind": "linkbench", "nodes": 100, "edition": "2012"}), 1, "2012"),
            (json!({"kind": "sysbench", "tables": 0, "table_size": 1}), 1, "tables"),
            (json!({"kind": "sysbench", "tables": 1, "table_size": 1, "scale": 1}), 1, "scale"),
        ];
        for (workload, connections, expected) in cases {
            let text = json!({"conninfo": {"user": "u"}, "workload": workload, "seed": 1, "connections": connections,
                "into_existing": false});
            let problem = Specification::read(&text.to_string()).expect_err(expected).to_string();
            assert!(problem.contains(expected), "{text}: {problem}");
        }
    }
}
