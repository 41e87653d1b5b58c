//! Threads and clients of a run.

mod work;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use pgwire::conninfo::Conninfo;
use reactor::{Clock, Error, Nanos, Reactor, catch_panic, file_limit, raise_file_limit};
use sysbench::{Connections, Place, Program, ScriptClient};

use super::arguments::{RunOptions, seconds};
use super::messages::{failed, fatal, refusal};
use super::record::{Arrivals, Interval, Record};

/// Open files of a thread besides its connections, and of the process besides its threads.
const FILES_PER_THREAD: u64 = 8;
const FILES_OF_PROCESS: u64 = 64;

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

/// What a thread leaves.
pub type ThreadEnd = Result<(), Error>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bench {
    /// A run that is yet to begin.
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

    /// Whether a client has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(SeqCst)
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
    pub(crate) fn fail(&self) {
        self.has_failed.store(true, SeqCst);
        self.is_over.store(true, SeqCst);
    }

    /// Counts a thread for which the start need not wait any more.
    fn count_ready(&self) -> MutexGuard<'_, (usize, Option<Nanos>)> {
        let mut state = lock(&self.start.state);
        state.0 += 1;
        self.start.changed.notify_all();
        state
    }

    /// Says that a thread is ready, and waits for the others. `None`: the run does not begin.
    fn wait_for_start(&self) -> Option<Nanos> {
        let mut state = self.count_ready();
        while state.1.is_none() {
            state = self.start.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.1.filter(|_| !self.has_failed())
    }

    /// Waits until all threads are ready, and gives the start. `None`: they took too long.
    pub(crate) fn begin(&self) -> Option<Nanos> {
        let limit_s = self.options.init_timeout_s;
        let limit = self.clock.now() + seconds(limit_s);
        let mut state = lock(&self.start.state);
        while state.0 < self.records.len() {
            let left = limit - self.clock.now();
            if left == Nanos::ZERO {
                fatal(format_args!("Worker threads failed to initialize within {limit_s} seconds!"));
                return None;
            }
            let waited = self.start.changed.wait_timeout(state, Duration::from_nanos(left.0));
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if !self.has_failed() {
            self.message("Threads started!\n\n");
        }
        let now = self.clock.now();
        let seed = self.options.seed.map_or(now.0, u64::from);
        *lock(&self.arrivals) = self.options.rate_per_s.map(|rate| Arrivals::new(seed, rate as f64, now));
        state.1 = Some(now);
        self.start.changed.notify_all();
        Some(now)
    }

    /// Where clients of a loop connect.
    pub(crate) fn place<'a>(&'a self, reactor: &'a Reactor) -> Place<'a> {
        let is_used = Some(&self.uses_sql);
        Place { reactor, conninfo: &self.conninfo, on_refusal: refusal, canceller: None, is_used }
    }

    /// Prints a message of the default verbosity.
    pub(crate) fn message(&self, text: &str) {
        if self.options.verbosity >= 3 {
            (self.program.output)(text);
        }
    }

    /// Takes what is recorded. Resets what was recorded since the last checkpoint if `is_checkpoint`, else
    /// since the last intermediate report.
    pub(crate) fn take_record(&self, is_checkpoint: bool) -> Record {
        let mut taken = Record::default();
        for record in &self.records {
            let mut record = lock(record);
            taken.merge(&record);
            if is_checkpoint {
                record.total = Interval::default();
                record.clients.fill((0, Nanos::ZERO));
            } else {
                record.recent = Interval::default();
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
    pub(crate) fn ends(&self, start: Nanos) -> Nanos {
        let time_s = self.options.time_s.map(|s| s.saturating_add(self.options.warmup_s));
        time_s.map_or(Nanos::MAX, |s| start + seconds(s))
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

/// Runs a function of the script in its first state; `false` if it failed.
pub fn call(
    main: &mut ScriptClient,
    links: &mut Connections<'_>,
    called: &str,
    function: mlua::Function,
) -> bool {
    let reactor = links.reactor();
    match reactor.block_on(main.run(reactor, function, links)) {
        Ok(Ok(())) => return true,
        Ok(Err(error)) => failed(called, &error),
        Err(error) => fatal(error),
    }
    false
}

/// Starts a thread for each share of the clients.
pub fn spawn(bench: &Arc<Bench>, command: Option<&str>) -> Result<mpsc::Receiver<ThreadEnd>, Error> {
    let (clients, threads) = (u64::from(bench.options.clients), bench.records.len() as u64);
    let files = clients + threads * FILES_PER_THREAD + FILES_OF_PROCESS;
    // Not above the hard limit, as an error would be: a script may open no connections.
    raise_file_limit(files.min(file_limit()))?;
    let (sender, ends) = mpsc::channel();
    let mut first = 0;
    for (thread, share) in shares(bench.options.clients as usize, bench.records.len()).enumerate() {
        let (bench, sender, command) = (Arc::clone(bench), sender.clone(), command.map(str::to_owned));
        let clients = first..first + share as u32;
        first += share as u32;
        let work = move || {
            let end = catch_panic(|| bench.work(thread, clients, command.as_deref()));
            if end.is_err() {
                bench.fail();
                // If it failed before the start, the other threads wait for it.
                drop(bench.count_ready());
            }
            let _ = sender.send(end);
        };
        let started = thread::Builder::new().name(format!("driver {thread}")).spawn(work);
        started.map_err(|source| Error::system("start a thread", source))?;
    }
    Ok(ends)
}
