//! Threads and clients of a run.

mod work;

use std::process::{self, ExitCode};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use pgwire::conninfo::Conninfo;
use reactor::{Clock, Error, Nanos, Reactor};
use sysbench::{Place, Program, ScriptClient};

use super::arguments::RunOptions;
use super::record::{Arrivals, Interval, Record};
use super::report::{self, Reporter};

/// A run, as its threads see it.
pub struct Bench {
    /// Its options.
    pub options: RunOptions,
    /// What its clients run.
    pub program: Arc<Program>,
    /// Where they connect.
    pub conninfo: Conninfo,
    clock: Clock,
    /// By thread: what is recorded.
    records: Vec<Mutex<Record>>,
    /// Events that have begun.
    begun: AtomicU64,
    /// Whether no event is to begin any more.
    is_over: AtomicBool,
    /// Whether a client has failed.
    has_failed: AtomicBool,
    /// Whether a client has connected to a server.
    uses_sql: AtomicBool,
    /// Clients that have not ended, and those that run an event.
    running: AtomicU64,
    busy: AtomicU64,
    /// The arrivals of a rate.
    arrivals: Mutex<Option<Arrivals>>,
    start: Start,
}

/// The start that all threads wait for.
#[derive(Default)]
struct Start {
    /// Threads that are ready, and the instant of the start.
    state: Mutex<(usize, Option<Nanos>)>,
    changed: Condvar,
}

/// Arrivals that may wait, as in sysbench, and how often they are counted.
const QUEUE_MAX: usize = 100_000;
const QUEUE_EVERY: Nanos = Nanos(100_000_000);

/// The exit status after a forced shutdown, as in sysbench.
const FORCED: i32 = 2;

/// What a thread leaves.
type ThreadEnd = Result<(), Error>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bench {
    /// A run that is yet to begin.
    #[must_use]
    pub fn new(options: RunOptions, program: Arc<Program>, conninfo: Conninfo) -> Self {
        let clients = options.clients as usize;
        let records = shares(clients, threads(clients)).map(|share| Mutex::new(Record::new(share))).collect();
        Self {
            options,
            program,
            conninfo,
            clock: Clock::monotonic(),
            records,
            begun: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            uses_sql: AtomicBool::new(false),
            running: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            arrivals: Mutex::default(),
            start: Start::default(),
        }
    }

    /// Takes an event; `false` if there is none any more.
    fn take_event(&self, ends: Nanos, now: Nanos) -> bool {
        if self.is_over.load(SeqCst) || now >= ends {
            return false;
        }
        match self.options.events {
            Some(limit) => self.begun.fetch_add(1, SeqCst) < limit,
            None => true,
        }
    }

    /// Ends the run for a failure.
    fn fail(&self) {
        self.has_failed.store(true, SeqCst);
        self.is_over.store(true, SeqCst);
    }

    /// Says that a thread is ready, and waits for the others. `None`: the run does not begin.
    fn wait_for_start(&self) -> Option<Nanos> {
        let mut state = lock(&self.start.state);
        state.0 += 1;
        self.start.changed.notify_all();
        while state.1.is_none() {
            state = self.start.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.1.filter(|_| !self.has_failed.load(SeqCst))
    }

    /// Waits until all threads are ready, and gives the start.
    fn begin(&self) -> Nanos {
        let mut state = lock(&self.start.state);
        while state.0 < self.records.len() {
            state = self.start.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if !self.has_failed.load(SeqCst) {
            self.message("Threads started!\n\n");
        }
        let now = self.clock.now();
        let seed = self.options.seed.map_or(now.0, u64::from);
        *lock(&self.arrivals) = self.options.rate_per_s.map(|rate| Arrivals::new(seed, rate as f64, now));
        state.1 = Some(now);
        self.start.changed.notify_all();
        now
    }

    /// Where clients of a loop connect.
    pub(crate) fn place<'a>(&'a self, reactor: &'a Reactor) -> Place<'a> {
        Place { reactor, conninfo: &self.conninfo, on_refusal: report::refusal }
    }

    /// Prints a message of the default verbosity.
    pub(crate) fn message(&self, text: &str) {
        if self.options.verbosity >= 3 {
            (self.program.output)(text);
        }
    }

    /// Takes what is recorded: resets what was recorded since the last intermediate report, and all if `all`.
    pub(crate) fn take_record(&self, all: bool) -> Record {
        let mut taken = Record::default();
        for record in &self.records {
            let mut record = lock(record);
            taken.merge(&record);
            record.recent = Interval::default();
            if all {
                let clients = record.clients.len();
                *record = Record::new(clients);
            }
        }
        taken
    }

    /// The present instant.
    pub(crate) fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Whether a client uses a server: reports have its statistics then.
    pub(crate) fn uses_sql(&self) -> bool {
        self.uses_sql.load(SeqCst)
    }

    /// The next arrival, under a rate.
    fn take_arrival(&self) -> Option<Nanos> {
        lock(&self.arrivals).as_mut().map(Arrivals::take)
    }

    /// Arrivals that wait and clients that run an event, under a rate.
    pub(crate) fn queue(&self) -> Option<(usize, u64)> {
        let waiting = lock(&self.arrivals).as_mut()?.waiting(self.clock.now());
        Some((waiting, self.busy.load(SeqCst)))
    }

    /// Clients that have not ended.
    pub(crate) fn running_clients(&self) -> u64 {
        self.running.load(SeqCst)
    }

    /// When the last event may begin.
    fn ends(&self, start: Nanos) -> Nanos {
        let time_s = self.options.time_s.map(|s| s + self.options.warmup_s);
        time_s.map_or(Nanos::MAX, |s| start + Nanos(s * 1_000_000_000))
    }
}

/// Threads for so many clients (ADR 2).
fn threads(clients: usize) -> usize {
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if clients <= cores { clients } else { cores.div_ceil(2) }
}

/// How many clients each thread has.
fn shares(clients: usize, threads: usize) -> impl Iterator<Item = usize> {
    (0..threads).map(move |thread| clients / threads + usize::from(thread < clients % threads))
}

/// Starts a thread for each share of the clients.
fn spawn(bench: &Arc<Bench>, command: Option<&str>) -> Result<mpsc::Receiver<ThreadEnd>, Error> {
    let (sender, ends) = mpsc::channel();
    let mut first = 0;
    for (thread, share) in shares(bench.options.clients as usize, bench.records.len()).enumerate() {
        let (bench, sender, command) = (Arc::clone(bench), sender.clone(), command.map(str::to_owned));
        let clients = first..first + share as u32;
        first += share as u32;
        let work = move || {
            let end = bench.work(thread, clients, command.as_deref());
            if end.is_err() {
                bench.fail();
            }
            let _ = sender.send(end);
        };
        let started = thread::Builder::new().name(format!("driver {thread}")).spawn(work);
        started.map_err(|source| Error::System { action: "start a thread".to_owned(), source })?;
    }
    Ok(ends)
}

/// Runs a command of the script in all clients.
pub fn run_command(bench: &Arc<Bench>, command: &str) -> ExitCode {
    bench.message("Initializing worker threads...\n\n");
    let ends = match spawn(bench, Some(command)) {
        Ok(ends) => ends,
        Err(error) => return fatal(&error),
    };
    finish(bench, &ends)
}

fn fatal(error: &Error) -> ExitCode {
    report::fatal(error);
    ExitCode::FAILURE
}

/// Waits for the ends of all threads.
fn finish(bench: &Bench, ends: &mpsc::Receiver<ThreadEnd>) -> ExitCode {
    for end in ends {
        if let Err(error) = end {
            return fatal(&error);
        }
    }
    if bench.has_failed.load(SeqCst) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Runs events, and reports. `main` is the script's first state, which has its hooks.
pub fn run(bench: &Arc<Bench>, mut main: ScriptClient) -> ExitCode {
    if !main.has("event") && !main.has("thread_run") {
        let name = bench.program.name.rsplit('/').next().unwrap_or_default();
        report::fatal(format_args!("cannot find the event() function in {name}"));
        return ExitCode::FAILURE;
    }
    if !report::call(bench, &mut main, "init") {
        return ExitCode::FAILURE;
    }
    bench.message(&report::preamble(&bench.options));
    bench.message("Initializing worker threads...\n\n");
    let ends = match spawn(bench, None) {
        Ok(ends) => ends,
        Err(error) => return fatal(&error),
    };
    let start = bench.begin();
    let mut reporter = Reporter::new(bench, start);
    if !wait(bench, start, &ends, &mut reporter, &mut main) {
        return ExitCode::FAILURE;
    }
    reporter.last(&mut main);
    if report::call(bench, &mut main, "done") { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Waits for the ends of all threads and reports meanwhile; `false` after a failure.
fn wait(
    bench: &Bench,
    start: Nanos,
    ends: &mpsc::Receiver<ThreadEnd>,
    reporter: &mut Reporter<'_>,
    main: &mut ScriptClient,
) -> bool {
    let forced = bench.options.forced_shutdown_s.map(|s| bench.ends(start) + Nanos(s * 1_000_000_000));
    loop {
        let due = reporter.due().min(forced.unwrap_or(Nanos::MAX));
        // Under a rate the queue is looked at often enough.
        let every = if bench.options.rate_per_s.is_some() { QUEUE_EVERY } else { Nanos::MAX };
        let left = (due - bench.clock.now()).min(every);
        if bench.queue().is_some_and(|(waiting, _)| waiting > QUEUE_MAX) {
            report::fatal("The event queue is full. The clients cannot keep up with --rate");
            bench.fail();
            return false;
        }
        match ends.recv_timeout(Duration::from_nanos(left.0.min(1 << 60))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                fatal(&error);
                return false;
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) if forced.is_some_and(|at| bench.clock.now() >= at) => {
                report::fatal("The --time limit has expired, forcing shutdown...");
                reporter.last(main);
                // Threads that wait for the server end with the process.
                process::exit(FORCED);
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                if bench.clock.now() >= reporter.due() {
                    reporter.report(main);
                }
            }
        }
    }
    !bench.has_failed.load(SeqCst)
}
