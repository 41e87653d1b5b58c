//! Threads and clients of a run, and what they leave.

mod run;
mod work;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

pub use run::{Unfinished, run};

use super::checkpoint::{Before, CheckpointFiles, ThreadPosition, ThreadState};
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
    /// As asked for.
    pub options: Options,
    /// What the clients run.
    pub program: Arc<Program>,
    /// Where.
    pub conninfo: Conninfo,
    /// What was found there.
    pub tables: Tables,
    /// What the generators were seeded with.
    pub seed: u64,
    /// Where messages go.
    pub log: Log,
    /// The mean time between transactions of a thread, µs, where a rate is given.
    pub throttle_us: Option<f64>,
    /// Beyond it a transaction is late.
    pub latency_limit: Option<Nanos>,
    /// Whether it is looked how long each command takes.
    pub are_commands_timed: bool,
    /// What the runs before this one leave to it.
    pub before: Before,
    /// Where the run's state is kept, if it is.
    pub checkpoint_files: Option<CheckpointFiles>,
    clock: Clock,
    /// What the clock calls zero, in Unix time.
    zero: Nanos,
    /// By thread: where it begins.
    places: Vec<ThreadPosition>,
    /// By thread.
    records: Vec<Mutex<Record>>,
    barrier: Barrier,
    /// Once all are connected.
    start: OnceLock<Start>,
    has_failed: AtomicBool,
}

/// The start of the first transactions.
#[derive(Clone, Copy)]
struct Start {
    at: Nanos,
    /// The processor time of this process until then.
    cpu: Usage,
}

/// What a thread leaves.
struct ThreadResult {
    thread: usize,
    connecting: Nanos,
    aborted: bool,
    /// Whether its log could be written.
    is_logged: bool,
}

/// What came of a run.
pub struct Results {
    /// What was recorded of transactions.
    pub record: Record,
    /// From the first transaction on.
    pub duration: Nanos,
    /// Before it, until all were connected.
    pub connecting_first: Nanos,
    /// Later, under --connect.
    pub connecting_again: Nanos,
    /// The processor time of this process in it.
    pub cpu: Usage,
    /// Whether a client was aborted.
    pub is_aborted: bool,
    /// Whether all transactions are in the log that were to be there.
    pub is_logged: bool,
}

impl Bench {
    /// A run that is yet to begin.
    #[must_use]
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
        let states = ThreadState::all(&program, options.clients as usize, jobs, is_detailed);
        let mut bench = Self {
            throttle_us: options.rate_per_s.map(|rate| 1e6 / rate * jobs as f64),
            latency_limit: options.latency_limit_ms.map(|limit_ms| Nanos((limit_ms * 1e6).round() as u64)),
            clock: Clock::monotonic(),
            zero: Nanos::from_s(unix_s()),
            are_commands_timed: options.report_per_command || is_detailed,
            before: Before::default(),
            checkpoint_files: None,
            places: Vec::new(),
            records: Vec::new(),
            barrier: Barrier::new(jobs),
            start: OnceLock::new(),
            has_failed: AtomicBool::new(false),
            options,
            program,
            conninfo,
            tables,
            seed,
            log,
        };
        bench.set_states(states);
        bench
    }

    /// Puts the threads, none of which has begun, elsewhere.
    pub fn set_states(&mut self, states: Vec<ThreadState>) {
        let parts = states.into_iter().map(|state| (state.place, Mutex::new(state.record)));
        (self.places, self.records) = parts.unzip();
    }

    /// Where the threads are that have not begun yet.
    #[must_use]
    pub fn states(&self) -> Vec<ThreadState> {
        let states = self.places.iter().zip(&self.records);
        states
            .map(|(place, record)| ThreadState { place: place.clone(), record: lock(record).clone() })
            .collect()
    }

    /// Whether the number of a client's transactions allows another one.
    #[must_use]
    pub fn is_to_go_on(&self, ended: u64) -> bool {
        self.options.time_s > 0 || ended < u64::from(self.options.transactions)
    }

    /// The processor time of the run so far.
    #[must_use]
    pub fn cpu(&self) -> Usage {
        let mut cpu = self.before.cpu;
        if let Some(start) = self.start.get() {
            cpu += usage() - start.cpu;
        }
        cpu
    }

    /// How long the run has driven at an instant of its clock.
    #[must_use]
    pub fn run_until(&self, at: Nanos) -> Nanos {
        self.before.run + self.start.get().map_or(Nanos::ZERO, |start| at - start.at)
    }

    /// All threads' statistics so far.
    fn so_far(&self) -> Statistics {
        let mut all = Statistics::default();
        for record in &self.records {
            all.merge(&lock(record).total());
        }
        all
    }

    /// What all threads have recorded.
    fn recorded(&self) -> Record {
        let mut all = Record::new(&self.program.scripts, self.options.detail.is_recorded());
        for record in &self.records {
            all.merge(&lock(record));
        }
        all
    }

    /// The start: it is now, for the first that asks.
    fn start(&self) -> Start {
        *self.start.get_or_init(|| Start { at: self.clock.now(), cpu: usage() })
    }
}

/// The time now.
#[must_use]
pub fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
