//! One client of a run: when its transactions begin, how often they are tried, how they end.

use std::cell::Cell;
use std::sync::Mutex;

use super::Bench;
use super::log::server_text;
use super::statistics::{CommandStatistics, Outcome, Statistics};
use crate::io::{Connection, Error, Nanos, Reactor};
use crate::pgbench::random::distribution::poisson_wait;
use crate::pgbench::random::streams::ThreadStreams;
use crate::pgbench::session::{Player, Stop};
use crate::wire::SqlState;

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
    /// By script; others look at it to report progress.
    pub statistics: &'a Mutex<Vec<Statistics>>,
    /// Time spent on connecting again and again.
    pub connecting: Cell<Nanos>,
}

/// A client.
pub struct Client<'a, 'b> {
    /// Its thread.
    pub thread: &'a Thread<'b>,
    /// It, as the language knows it.
    pub player: Player,
    /// Its session; none before a transaction that is to have its own.
    pub connection: Option<Connection>,
    /// By script and command, if that is reported.
    pub commands: Vec<Vec<CommandStatistics>>,
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
    pub async fn run(&mut self) -> Result<(), Aborted> {
        let bench = self.thread.bench;
        let mut left =
            if bench.options.time_s > 0 { u64::MAX } else { u64::from(bench.options.transactions) };
        while left > 0 && self.thread.reactor.now() < self.thread.ends {
            let script = self.choose();
            let Some(due) = self.wait_for_turn(script, &mut left).await else { return Ok(()) };
            let mut connection = match self.connection.take() {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            let began = self.thread.reactor.now();
            let times = Times { due: due.unwrap_or(began), began };
            self.player.begin(script);
            if !self.transaction(script, &times, &mut connection).await? {
                return Ok(());
            }
            left -= 1;
            if bench.options.connect {
                let from = self.thread.reactor.now();
                drop(connection);
                self.add_connecting(from);
            } else {
                self.connection = Some(connection);
            }
        }
        Ok(())
    }

    fn choose(&self) -> usize {
        let mut streams = self.thread.streams.get();
        let script = self.player.program.scripts.choose(&mut streams.choose);
        self.thread.streams.set(streams);
        script
    }

    /// Waits until a transaction is due by the rate, and gives that instant; skips those that are too late already.
    /// `None`: there is no transaction any more.
    async fn wait_for_turn(&self, script: usize, left: &mut u64) -> Option<Option<Nanos>> {
        let thread = self.thread;
        let Some(mean_us) = thread.bench.throttle_us else { return Some(None) };
        let mut due = self.next_due(mean_us);
        if let Some(limit) = thread.bench.latency_limit {
            while *left > 0 && due + limit < thread.reactor.now() {
                lock(thread.statistics)[script].skipped += 1;
                *left -= 1;
                due = self.next_due(mean_us);
            }
        }
        if *left == 0 || due >= thread.ends {
            return None;
        }
        thread.reactor.sleep_until(due).await;
        Some(Some(due))
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
        let connected = Connection::connect(&self.thread.reactor, &self.thread.bench.conninfo).await;
        self.player.reconnected();
        self.add_connecting(from);
        connected.map_err(|error| {
            let log = &self.thread.bench.log;
            log.error(&server_text(&error));
            log.error(&format!("client {} aborted while establishing connection", self.player.client().id));
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
            let commands = &mut self.commands;
            let mut watch = |command: usize, took| commands[script][command].time.add(took);
            let watch: Option<&mut dyn FnMut(usize, Nanos)> =
                if bench.options.report_per_command { Some(&mut watch) } else { None };
            let outcome = match self.player.attempt_watched(connection, watch).await {
                Ok(()) => Outcome::Done,
                Err(stop) => self.failure(stop)?,
            };
            let now = self.thread.reactor.now();
            if outcome != Outcome::Done {
                if connection.recover().await.is_err() {
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
            }
            let (latency, lag) = (now - times.due, times.began - times.due);
            let is_late = bench.latency_limit.is_some_and(|limit| latency > limit);
            lock(self.thread.statistics)[script].add(outcome, tries, latency, lag, is_late);
            return Ok(true);
        }
    }

    /// Says what went wrong; an outcome, if the client goes on.
    fn failure(&self, stop: Stop) -> Result<Outcome, Aborted> {
        let (options, log) = (&self.thread.bench.options, &self.thread.bench.log);
        let client = self.player.client();
        let (id, script, command) = (client.id, client.script(), client.command());
        let error = match stop {
            Stop::Script(abort) => {
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
                let text = server_text(&error);
                log.info(&format!(
                    "client {id} got an error in command {command} (SQL) of script {script}; {text}"
                ));
            }
            return Ok(outcome);
        }
        if let Error::Server(_) = error {
            let (query, text) = (self.player.query(), server_text(&error));
            log.error(&format!(
                "client {id} script {script} aborted in command {command} query {query}: {text}"
            ));
        } else {
            log.error(&format!("client {id} aborted in command {command} (SQL) of script {script}; {error}"));
        }
        Err(Aborted)
    }

    fn may_retry(&self, outcome: Outcome, tries: u32, took: Nanos) -> bool {
        let bench = self.thread.bench;
        let max_tries = bench.options.max_tries;
        let is_late = bench.latency_limit.is_some_and(|limit| took > limit);
        outcome != Outcome::Other && (max_tries == 0 || tries < max_tries) && !is_late
    }

    fn note_failure(&mut self, script: usize, again: bool, tries: u32, took: Nanos) {
        let bench = self.thread.bench;
        let client = self.player.client();
        let command = &mut self.commands[script][client.command()];
        if again {
            command.retries += 1;
        } else {
            command.failures += 1;
        }
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

/// The counters. A thread that panicked while it counted leaves them whole.
pub fn lock(statistics: &Mutex<Vec<Statistics>>) -> std::sync::MutexGuard<'_, Vec<Statistics>> {
    statistics.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
