//! One client of a run: start, retries and outcome of its transactions.

use std::cell::{Cell, RefCell};
use std::sync::Mutex;

use pgbench::random::{ThreadStreams, poisson_wait};
use pgbench::session::{ScriptRunner, Stop, Watch};
use pgwire::SqlState;
use pgwire::backend::ProtocolError;
use reactor::{Connection, Error, Nanos, Reactor};

use super::bench::Bench;
use super::connect::connect;
use super::log::{server_text, statement_text};
use super::record::{Record, lock};
use super::statistics::{Ended, Outcome};
use super::transaction_log::TransactionLog;

/// State shared by the clients of a thread.
pub struct Thread<'a> {
    /// Run.
    pub bench: &'a Bench,
    /// Event loop.
    pub reactor: Reactor,
    /// Generators of the thread.
    pub streams: Cell<ThreadStreams>,
    /// Scheduled start of the next transaction with a rate.
    pub due: Cell<Nanos>,
    /// No transaction starts from this instant on.
    pub ends: Nanos,
    /// Record, which other threads read to report progress.
    pub record: &'a Mutex<Record>,
    /// Time spent on connecting with `--connect`.
    pub connecting: Cell<Nanos>,
    /// Transaction log, if enabled.
    pub log: Option<RefCell<TransactionLog>>,
}

/// A client.
pub struct Client<'a, 'b> {
    /// Thread.
    pub thread: &'a Thread<'b>,
    /// Script runner.
    pub runner: ScriptRunner,
    /// Session; `None` between transactions with `--connect`.
    pub connection: Option<Connection>,
    /// Number of its completed transactions, with any outcome.
    ended: u64,
}

/// A client was aborted and has reported the reason.
pub struct Aborted;

/// Times of a transaction.
struct Times {
    /// Scheduled start; the actual start without a rate.
    due: Nanos,
    began: Nanos,
}

impl Client<'_, '_> {
    /// Executes transactions until the run ends.
    pub async fn run(mut self) -> Result<(), Aborted> {
        let bench = self.thread.bench;
        let mut connection = self.connection.take();
        while self.is_to_go_on() && self.thread.reactor.now() < self.thread.ends {
            let script = self.choose();
            bench.log.debug(|| {
                let name = &self.runner.program.scripts.scripts()[script].name;
                format!("client {} executing script \"{name}\"", self.runner.client().id)
            });
            let Some(due) = self.wait_for_turn(script).await else { return Ok(()) };
            let session = match &mut connection {
                Some(session) => session,
                None => connection.insert(Box::pin(self.connect()).await?),
            };
            let began = self.thread.reactor.now();
            let times = Times { due: due.unwrap_or(began), began };
            self.runner.begin(script);
            if !self.transaction(script, &times, session).await? {
                return Ok(());
            }
            if bench.options.connect {
                let from = self.thread.reactor.now();
                connection = None;
                self.add_connecting(from);
            }
        }
        Ok(())
    }

    fn choose(&self) -> usize {
        let mut streams = self.thread.streams.get();
        let script = self.runner.program.scripts.choose(&mut streams.choose);
        self.thread.streams.set(streams);
        script
    }

    fn is_to_go_on(&self) -> bool {
        self.thread.bench.is_to_go_on(self.ended)
    }

    /// Waits for the scheduled start of a transaction and returns it. Skips those that are already too late.
    ///
    /// `None`: there is no further transaction.
    async fn wait_for_turn(&mut self, script: usize) -> Option<Option<Nanos>> {
        let thread = self.thread;
        let Some(mean_us) = thread.bench.throttle_us else { return Some(None) };
        let mut due = self.next_due(mean_us);
        if let Some(limit) = thread.bench.latency_limit {
            let now = thread.reactor.now();
            while self.is_to_go_on() && due + limit < now {
                let (latency, lag) = (Nanos::ZERO, Nanos::ZERO);
                let outcome = Outcome::Skipped;
                self.end(&Ended { script, outcome, tries: 1, latency, lag, is_late: false, at: now });
                due = self.next_due(mean_us);
            }
        }
        if !self.is_to_go_on() || due >= thread.ends {
            return None;
        }
        thread.reactor.sleep_until(due).await;
        Some(Some(due))
    }

    /// Records and logs a transaction.
    fn end(&mut self, ended: &Ended) {
        self.ended += 1;
        let bench = self.thread.bench;
        lock(self.thread.record).add(ended, bench.run_until(ended.at));
        if let Some(log) = self.thread.log.as_ref().filter(|_| self.is_sampled()) {
            log.borrow_mut().add(self.runner.client().id, self.ended, ended);
        }
    }

    /// Whether this transaction is logged.
    fn is_sampled(&self) -> bool {
        let Some(rate) = self.thread.bench.options.log.sampling_rate else { return true };
        let mut streams = self.thread.streams.get();
        let is_sampled = streams.sample.unit() <= rate;
        self.thread.streams.set(streams);
        is_sampled
    }

    fn next_due(&self, mean_us: f64) -> Nanos {
        let thread = self.thread;
        let mut streams = thread.streams.get();
        let wait_us = poisson_wait(&mut streams.throttle, mean_us).max(0) as u64;
        thread.streams.set(streams);
        thread.due.set(thread.due.get() + Nanos(wait_us.saturating_mul(1000)));
        thread.due.get()
    }

    async fn connect(&mut self) -> Result<Connection, Aborted> {
        let from = self.thread.reactor.now();
        let connected = connect(&self.thread.reactor, &self.thread.bench.conninfo).await;
        self.runner.reconnected();
        self.add_connecting(from);
        connected.map_err(|error| {
            let log = &self.thread.bench.log;
            log.error(&server_text(&error));
            log.error(&format!("client {} aborted while establishing connection", self.runner.client().id));
            Aborted
        })
    }

    fn add_connecting(&self, from: Nanos) {
        let took = self.thread.reactor.now() - from;
        self.thread.connecting.set(self.thread.connecting.get() + took);
    }

    /// Executes one transaction with its retries. Returns false if the time ended after a failure.
    async fn transaction(
        &mut self,
        script: usize,
        times: &Times,
        connection: &mut Connection,
    ) -> Result<bool, Aborted> {
        let bench = self.thread.bench;
        let mut tries = 1;
        loop {
            let record = self.thread.record;
            let mut took = |command: usize, took| lock(record).add_command(script, command, took);
            let debug = |line: String| bench.log.debug(|| line);
            let watch = Watch { took: &mut took, debug: bench.log.debug.then_some(&debug) };
            let watch = (bench.are_commands_timed || bench.log.debug).then_some(watch);
            let outcome = match self.runner.attempt_watched(connection, watch).await {
                Ok(()) => Outcome::Done,
                Err(stop @ Stop::LeftOpen(_)) => {
                    self.done(script, times, tries);
                    self.failure(stop)?
                }
                Err(stop) => self.failure(stop)?,
            };
            if outcome == Outcome::Done {
                self.done(script, times, tries);
                return Ok(true);
            }
            if Box::pin(connection.recover()).await.is_err() {
                bench.log.error("perhaps the backend died while processing");
                return Err(Aborted);
            }
            let now = self.thread.reactor.now();
            if now >= self.thread.ends {
                return Ok(false);
            }
            let again = self.may_retry(outcome, tries, now - times.due);
            self.note_failure(script, again, tries, now - times.due);
            if again {
                tries += 1;
                continue;
            }
            let (latency, lag) = (Nanos::ZERO, Nanos::ZERO);
            self.end(&Ended { script, outcome, tries, latency, lag, is_late: false, at: now });
            return Ok(true);
        }
    }

    /// Records and logs an executed transaction.
    fn done(&mut self, script: usize, times: &Times, tries: u32) {
        let at = self.thread.reactor.now();
        let (latency, lag) = (at - times.due, times.began - times.due);
        let is_late = self.thread.bench.latency_limit.is_some_and(|limit| latency > limit);
        self.end(&Ended { script, outcome: Outcome::Done, tries, latency, lag, is_late, at });
    }
}

impl Client<'_, '_> {
    /// Reports the failure. Returns an outcome if the client continues.
    fn failure(&self, stop: Stop) -> Result<Outcome, Aborted> {
        let (options, log) = (&self.thread.bench.options, &self.thread.bench.log);
        let client = self.runner.client();
        let (id, script, command) = (client.id, client.script(), client.command());
        let error = match stop {
            Stop::Script(abort) | Stop::LeftOpen(abort) => {
                abort.messages.iter().for_each(|message| log.error(message));
                return Err(Aborted);
            }
            Stop::Session(error) => error,
        };
        let outcome = match error.sqlstate() {
            Some(SqlState::SERIALIZATION_FAILURE) => Outcome::Serialization,
            Some(SqlState::DEADLOCK_DETECTED) => Outcome::Deadlock,
            _ => Outcome::Other,
        };
        let goes_on = outcome != Outcome::Other || options.continue_on_error;
        if goes_on && !error.is_fatal() {
            if options.verbose_errors {
                let text = statement_text(&error, self.runner.statement().as_deref());
                log.info(&format!(
                    "client {id} got an error in command {command} (SQL) of script {script}; {text}"
                ));
            }
            return Ok(outcome);
        }
        if is_copy(&error) {
            log.error("COPY is not supported in pgbench, aborting");
        } else if let Error::Server(_) = error {
            let query = self.runner.query();
            let text = statement_text(&error, self.runner.statement().as_deref());
            log.error(&format!(
                "client {id} script {script} aborted in command {command} query {query}: {text}"
            ));
        } else {
            let why = match error {
                Error::Closed => "perhaps the backend died while processing".to_owned(),
                error => error.to_string(),
            };
            log.error(&format!("client {id} aborted in command {command} (SQL) of script {script}; {why}"));
        }
        Err(Aborted)
    }

    fn may_retry(&self, outcome: Outcome, tries: u32, took: Nanos) -> bool {
        let bench = self.thread.bench;
        let max_tries = bench.options.max_tries;
        let is_late = bench.latency_limit.is_some_and(|limit| took > limit);
        outcome != Outcome::Other && (max_tries == 0 || tries < max_tries) && !is_late
    }

    fn note_failure(&self, script: usize, again: bool, tries: u32, took: Nanos) {
        let bench = self.thread.bench;
        let client = self.runner.client();
        lock(self.thread.record).add_failure(script, client.command(), again);
        if bench.options.verbose_errors {
            let does =
                if again { "repeats the transaction after the error" } else { "ends the failed transaction" };
            let of = if bench.options.max_tries > 0 {
                format!("/{}", bench.options.max_tries)
            } else {
                String::new()
            };
            let used = bench.latency_limit.map(|limit| {
                let used = 100.0 * took.0 as f64 / limit.0 as f64;
                format!(", {used:.3}% of the maximum time of tries was used")
            });
            let used = used.unwrap_or_default();
            bench.log.info(&format!("client {} {does} (try {tries}{of}{used})", client.id));
        }
    }
}

/// Whether the server started a COPY, which scripts do not support.
fn is_copy(error: &Error) -> bool {
    matches!(error, Error::Protocol(ProtocolError::Unexpected { message, .. }) if message.starts_with("Copy"))
}

impl<'a, 'b> Client<'a, 'b> {
    /// Creates a client of a thread.
    pub fn new(thread: &'a Thread<'b>, runner: ScriptRunner, connection: Option<Connection>) -> Self {
        Self { thread, runner, connection, ended: 0 }
    }
}
