//! Threads and clients of a run, and what they leave.

mod work;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Barrier, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::log::Log;
use super::options::Options;
use super::record::{Record, lock};
use super::report;
use super::setup::Tables;
use super::statistics::Statistics;
use crate::io::{Clock, Error, Nanos, Usage, raise_file_limit, usage};
use crate::pgbench::random::streams::clients_per_thread;
use crate::pgbench::session::Program;
use crate::wire::conninfo::Conninfo;

/// Files besides the connections: a loop's own, and the process's.
const FILES_PER_THREAD: u64 = 8;
const FILES_OF_PROCESS: u64 = 64;

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
    clock: Clock,
    /// What the clock calls zero, in Unix time.
    zero: Nanos,
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
struct Legacy {
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
    ) -> Arc<Self> {
        let jobs = options.jobs as usize;
        let is_detailed = options.detail.is_recorded();
        let record = || Mutex::new(Record::new(&program.scripts, is_detailed));
        Arc::new(Self {
            throttle_us: options.rate_per_s.map(|rate| 1e6 / rate * jobs as f64),
            latency_limit: options.latency_limit_ms.map(|limit_ms| Nanos((limit_ms * 1e6) as u64)),
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
        })
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

/// Why there are no results. It has been said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// The clients could not begin.
    NotBegun,
    /// A client was aborted, and that was to end all.
    Aborted,
}

/// Carries out a run. An error has been said.
pub fn run(bench: &Arc<Bench>) -> Result<Results, Unfinished> {
    let say = |error: &Error| {
        bench.log.error(&error.to_string());
        Unfinished::NotBegun
    };
    let options = &bench.options;
    let files = u64::from(options.clients) + u64::from(options.jobs) * FILES_PER_THREAD + FILES_OF_PROCESS;
    raise_file_limit(files).map_err(|error| say(&error))?;
    let from = bench.clock.now();
    let (sender, legacies) = mpsc::channel();
    let mut first = 0;
    for (thread, count) in
        clients_per_thread(options.clients as usize, options.jobs as usize).into_iter().enumerate()
    {
        let (bench, sender, count) = (Arc::clone(bench), sender.clone(), count as u32);
        let work = move || drop(sender.send(bench.work(thread, first, count)));
        let started = thread::Builder::new().name(format!("driver {thread}")).spawn(work);
        started.map_err(|source| say(&Error::System { action: "start a thread".to_owned(), source }))?;
        first += count;
    }
    drop(sender);
    wait(bench, from, &legacies)
}

/// Waits for the threads, and reports progress meanwhile.
fn wait(
    bench: &Bench,
    from: Nanos,
    legacies: &mpsc::Receiver<Result<Option<Legacy>, Error>>,
) -> Result<Results, Unfinished> {
    let mut results = Results {
        record: Record::default(),
        duration: Nanos::ZERO,
        connecting_first: Nanos::ZERO,
        connecting_again: Nanos::ZERO,
        cpu: Usage::default(),
        is_aborted: false,
        is_logged: true,
    };
    let mut progress = report::Progress::default();
    let every = Duration::from_secs(u64::from(bench.options.progress_s));
    let start = bench.clock.now();
    let mut next = start + Nanos(every.as_nanos() as u64);
    loop {
        let received = if every.is_zero() {
            legacies.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected)
        } else {
            let left = next - bench.clock.now();
            legacies.recv_timeout(Duration::from_nanos(left.0))
        };
        match received {
            Ok(Ok(Some(legacy))) => {
                results.connecting_again = results.connecting_again + legacy.connecting;
                results.is_aborted |= legacy.aborted;
                results.is_logged &= legacy.is_logged;
                if legacy.aborted && bench.options.exit_on_abort {
                    // The other threads end with the process.
                    bench.log.error(&format!("Run was aborted due to an error in thread {}", legacy.thread));
                    return Err(Unfinished::Aborted);
                }
            }
            Ok(Ok(None)) => return Err(Unfinished::NotBegun),
            Ok(Err(error)) => {
                bench.log.error(&error.to_string());
                return Err(Unfinished::NotBegun);
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let now = bench.clock.now();
                eprint!("{}", progress.line(bench, bench.so_far(), now - start, unix_s()));
                next = next + Nanos(every.as_nanos() as u64);
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    let start = bench.start();
    results.cpu = usage() - start.cpu;
    results.duration = bench.clock.now() - start.at;
    results.connecting_first = start.at - from;
    results.record = bench.recorded();
    Ok(results)
}

fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
