//! Threads and clients of a run, and their results.

pub mod run;
mod work;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use super::log::Log;
use super::options::Options;
use super::record::{Record, lock};
use super::setup::Tables;
use super::statistics::Statistics;
use pgbench::session::Program;
use pgwire::conninfo::Conninfo;
use reactor::{Clock, Nanos, Usage, usage};

/// A run.
pub struct Bench {
    /// Options.
    pub options: Options,
    /// Program of the clients.
    pub program: Arc<Program>,
    /// Connection parameters.
    pub conninfo: Conninfo,
    /// Properties of the server and the tables.
    pub tables: Tables,
    /// Seed of the generators.
    pub seed: u64,
    /// Logger.
    pub log: Log,
    /// Mean interval between transactions of a thread in µs, with a rate.
    pub throttle_us: Option<f64>,
    /// Latency limit.
    pub latency_limit: Option<Nanos>,
    /// Whether the duration of commands is measured.
    pub are_commands_timed: bool,
    clock: Clock,
    /// Unix time of the epoch of the clock.
    zero: Nanos,
    /// By thread.
    records: Vec<Mutex<Record>>,
    barrier: Barrier,
    /// Set when all clients are connected.
    start: OnceLock<Start>,
    has_failed: AtomicBool,
}

/// Start of the run.
#[derive(Clone, Copy)]
struct Start {
    at: Nanos,
    /// CPU time of this process until then.
    cpu: Usage,
}

/// Result of a thread.
struct ThreadResult {
    thread: usize,
    connecting: Nanos,
    aborted: bool,
    /// Whether its log is complete.
    is_logged: bool,
}

/// Results of a run.
#[derive(Default)]
pub struct Results {
    /// Record of transactions.
    pub record: Record,
    /// Duration from the first transaction on.
    pub duration: Nanos,
    /// Time until all clients were connected.
    pub connecting_first: Nanos,
    /// Later connection time, with `--connect`.
    pub connecting_again: Nanos,
    /// CPU time of this process during the run.
    pub cpu: Usage,
    /// Whether a client was aborted.
    pub is_aborted: bool,
    /// Whether the transaction log is complete.
    pub is_logged: bool,
}

impl Bench {
    /// Creates a run.
    pub fn new(
        options: Options,
        program: Arc<Program>,
        conninfo: Conninfo,
        tables: Tables,
        seed: u64,
        log: Log,
    ) -> Self {
        let jobs = options.jobs as usize;
        let is_detailed = options.detail.is_recorded();
        let record = || Mutex::new(Record::new(&program.scripts, is_detailed));
        Self {
            throttle_us: options.rate_per_s.map(|rate| 1e6 / rate * jobs as f64),
            latency_limit: options.latency_limit_ms.map(|limit_ms| Nanos((limit_ms * 1e6).round() as u64)),
            clock: Clock::monotonic(),
            zero: Nanos::from_s(unix_s()),
            are_commands_timed: options.report_per_command || is_detailed,
            records: (0..jobs).map(|_| record()).collect(),
            barrier: Barrier::new(jobs),
            start: OnceLock::new(),
            has_failed: AtomicBool::new(false),
            options,
            program,
            conninfo,
            tables,
            seed,
            log,
        }
    }

    /// Whether the transaction limit of a client allows another one.
    pub fn is_to_go_on(&self, ended: u64) -> bool {
        self.options.time_s > 0 || ended < u64::from(self.options.transactions)
    }

    /// CPU time of the run so far.
    pub fn cpu(&self) -> Usage {
        self.start.get().map_or_else(Usage::default, |start| usage() - start.cpu)
    }

    /// Duration of the run at an instant of its clock.
    pub fn run_until(&self, at: Nanos) -> Nanos {
        self.start.get().map_or(Nanos::ZERO, |start| at - start.at)
    }

    /// Statistics of all threads so far, with the retries of transactions that have not ended.
    fn so_far(&self) -> Statistics {
        let (mut all, mut retries) = (Statistics::default(), 0);
        for record in &self.records {
            let record = lock(record);
            all.merge(&record.total());
            retries += record.retries();
        }
        Statistics { retries, ..all }
    }

    /// Record of all threads.
    fn recorded(&self) -> Record {
        let mut all = Record::new(&self.program.scripts, self.options.detail.is_recorded());
        for record in &self.records {
            all.merge(&lock(record));
        }
        all
    }

    /// The start of the run, which the first call sets to now.
    fn start(&self) -> Start {
        *self.start.get_or_init(|| Start { at: self.clock.now(), cpu: usage() })
    }
}

/// The current Unix time.
pub fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
