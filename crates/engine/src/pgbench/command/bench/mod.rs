//! Threads and clients of a run, and what they leave.

mod work;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::client::lock;
use super::log::Log;
use super::options::Options;
use super::report;
use super::statistics::{CommandStatistics, Statistics};
use crate::io::{Clock, Error, Nanos, raise_file_limit};
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
    /// Where messages go.
    pub log: Log,
    /// The mean time between transactions of a thread, µs, where a rate is given.
    pub throttle_us: Option<f64>,
    /// Beyond it a transaction is late.
    pub latency_limit: Option<Nanos>,
    clock: Clock,
    /// What the clock calls zero, in Unix time.
    zero: Nanos,
    /// By thread and script.
    statistics: Vec<Mutex<Vec<Statistics>>>,
    barrier: Barrier,
    has_failed: AtomicBool,
}

/// What a thread leaves.
struct Legacy {
    thread: usize,
    commands: Vec<Vec<CommandStatistics>>,
    connecting: Nanos,
    began: Nanos,
    aborted: bool,
    /// Whether its log could be written.
    is_logged: bool,
}

/// What came of a run.
pub struct Results {
    /// By script.
    pub scripts: Vec<Statistics>,
    /// By script and command.
    pub commands: Vec<Vec<CommandStatistics>>,
    /// From the first transaction on.
    pub duration: Nanos,
    /// Before it, until all were connected.
    pub connecting_first: Nanos,
    /// Later, under --connect.
    pub connecting_again: Nanos,
    /// Whether a client was aborted.
    pub is_aborted: bool,
    /// Whether all transactions are in the log that were to be there.
    pub is_logged: bool,
}

impl Bench {
    /// A run that is yet to begin.
    #[must_use]
    pub fn new(options: Options, program: Arc<Program>, conninfo: Conninfo, log: Log) -> Arc<Self> {
        let jobs = options.jobs as usize;
        let scripts = program.scripts.scripts().len();
        let statistics = (0..jobs).map(|_| Mutex::new(vec![Statistics::default(); scripts])).collect();
        Arc::new(Self {
            throttle_us: options.rate_per_s.map(|rate| 1e6 / rate * jobs as f64),
            latency_limit: options.latency_limit_ms.map(|limit_ms| Nanos((limit_ms * 1e6) as u64)),
            clock: Clock::monotonic(),
            zero: Nanos::from_s(unix_s()),
            statistics,
            barrier: Barrier::new(jobs),
            has_failed: AtomicBool::new(false),
            options,
            program,
            conninfo,
            log,
        })
    }

    /// By script: all threads' statistics so far.
    fn so_far(&self) -> Vec<Statistics> {
        let mut all = vec![Statistics::default(); self.program.scripts.scripts().len()];
        for thread in &self.statistics {
            for (all, one) in all.iter_mut().zip(lock(thread).iter()) {
                all.merge(one);
            }
        }
        all
    }

    fn no_commands(&self) -> Vec<Vec<CommandStatistics>> {
        let scripts = self.program.scripts.scripts().iter();
        scripts.map(|script| vec![CommandStatistics::default(); script.commands.len()]).collect()
    }
}

fn merge_commands(into: &mut [Vec<CommandStatistics>], from: &[Vec<CommandStatistics>]) {
    for (into, from) in into.iter_mut().flatten().zip(from.iter().flatten()) {
        into.time.merge(&from.time);
        into.failures += from.failures;
        into.retries += from.retries;
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
        scripts: Vec::new(),
        commands: bench.no_commands(),
        duration: Nanos::ZERO,
        connecting_first: Nanos::ZERO,
        connecting_again: Nanos::ZERO,
        is_aborted: false,
        is_logged: true,
    };
    let mut began = Nanos::MAX;
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
                merge_commands(&mut results.commands, &legacy.commands);
                began = began.min(legacy.began);
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
                eprint!("{}", progress.line(bench, &bench.so_far(), now - start, unix_s()));
                next = next + Nanos(every.as_nanos() as u64);
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    results.scripts = bench.so_far();
    results.duration = bench.clock.now() - began;
    results.connecting_first = began - from;
    Ok(results)
}

fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
