//! One client of a run: when its transactions begin, how often they are tried, how they end.

mod failure;
mod place;

use std::cell::{Cell, RefCell};
use std::sync::Mutex;

use super::bench::Bench;
use super::checkpoint::ClientState;
use super::connect::connect;
use super::log::server_text;
use super::record::{Record, lock};
use super::statistics::{Ended, Outcome};
use super::transaction_log::TransactionLog;
use pgbench::random::distribution::poisson_wait;
use pgbench::random::streams::ThreadStreams;
use pgbench::session::{ScriptRunner, Stop, Watch};
use reactor::{Connection, Nanos, Reactor};

/// What the clients of a thread share.
pub struct Thread<'a> {
    /// The run.
    pub bench: &'a Bench,
    /// The loop.
    pub reactor: Reactor,
    /// The thread's generators.
    pub streams: Cell<ThreadStreams>,
    /// When the next transaction of a given rate is due.
    pub due: Cell<Nanos>,
    /// No transaction begins from then on.
    pub ends: Nanos,
    /// What is counted; others look at it to report progress.
    pub record: &'a Mutex<Record>,
    /// Time spent on connecting again and again.
    pub connecting: Cell<Nanos>,
    /// The number of its first client.
    pub first: u32,
    /// Where each is; of variables and generators only if the run's state is kept.
    pub clients: Vec<RefCell<ClientState>>,
    /// Where transactions are logged, if they are.
    pub log: Option<RefCell<TransactionLog>>,
}

/// A client.
pub struct Client<'a, 'b> {
    /// Its thread.
    pub thread: &'a Thread<'b>,
    /// It, as the language knows it.
    pub runner: ScriptRunner,
    /// Its session; none before a transaction that is to have its own.
    pub connection: Option<Connection>,
    /// Its transactions so far, however they ended.
    ended: u64,
    /// The script that was drawn for the first transaction already, in a run that goes on.
    drawn: Option<usize>,
}

/// A client cannot go on, and has said why.
pub struct Aborted;

/// The instants of a transaction.
struct Times {
    /// When it was due: when it began, without a rate.
    due: Nanos,
    began: Nanos,
}

impl Client<'_, '_> {
    /// Carries out transactions until the run ends.
    pub async fn run(mut self) -> Result<(), Aborted> {
        let bench = self.thread.bench;
        let mut connection = self.connection.take();
        while self.is_to_go_on() && self.thread.reactor.now() < self.thread.ends {
            let script = self.drawn.take().unwrap_or_else(|| self.choose());
            self.keep_place(script);
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

    /// Waits until a transaction is due by the rate, and gives that instant; skips those that are too late already.
    /// `None`: there is no transaction any more.
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

    /// Counts and logs a transaction.
    fn end(&mut self, ended: &Ended) {
        self.ended += 1;
        let bench = self.thread.bench;
        lock(self.thread.record).add(ended, bench.run_until(ended.at));
        self.keep_count();
        if let Some(log) = self.thread.log.as_ref().filter(|_| self.is_sampled()) {
            log.borrow_mut().add(self.runner.client().id, self.ended, ended);
        }
    }

    /// Whether the log is to have this transaction.
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
        thread.due.set(thread.due.get() + Nanos(wait_us * 1000));
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

    /// One transaction with its retries; false if time ran out while it failed.
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
            let now = self.thread.reactor.now();
            if Box::pin(connection.recover()).await.is_err() {
                bench.log.error("perhaps the backend died while processing");
                return Err(Aborted);
            }
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

    /// Counts and logs a transaction whose script has come to its end.
    fn done(&mut self, script: usize, times: &Times, tries: u32) {
        let at = self.thread.reactor.now();
        let (latency, lag) = (at - times.due, times.began - times.due);
        let is_late = self.thread.bench.latency_limit.is_some_and(|limit| latency > limit);
        self.end(&Ended { script, outcome: Outcome::Done, tries, latency, lag, is_late, at });
    }
}
