//! One client: waits for a slice, paces, sends transactions, retries, records outcomes.

use std::cell::RefCell;
use std::pin::pin;

use super::client_group::{Assignment, ClientGroup};
use super::connector::Connect;
use super::schedule::Window;
use super::spec::Pacing;
use super::{Ending, User};
use crate::record::{Histogram, Outcome, Sample};
use reactor::{Connection, Error, Nanos, Reactor};

/// Delay after which an arrival of an open loop is skipped, because the server cannot keep up or hangs, and the
/// backlog would grow without limit.
///
/// The latency of a skipped arrival is recorded as a lower bound.
const SKIP_LATE_AFTER: Nanos = Nanos(5_000_000_000);
/// Maximum number of attempts at a transaction after the close of its slice. A conflict at the close is usually
/// resolved by the next attempt. A transaction that never succeeds must not keep the slice open.
const ATTEMPTS_LATE_MAX: u32 = 10;
/// How long to try to reconnect before the server counts as lost, and how often.
const RECONNECT_WITHIN: Nanos = Nanos(2_000_000_000);
const RECONNECT_EVERY: Nanos = Nanos(50_000_000);
/// Round trips of a calibration: enough for a 99th percentile, and takes about 10 ms.
const CALIBRATION_ROUNDS: u32 = 200;

/// An event that a client reports to its thread.
pub enum ClientEvent {
    /// The client is connected and ready.
    Connected,
    /// The client failed at this stage of getting ready.
    Failed(&'static str, Error),
    /// Calibration of a target, by its first client.
    Calibrated {
        /// Round trips of an empty query.
        round_trips: Histogram,
        /// Version as reported by the server.
        server_version: String,
    },
    /// The server reported an error in a transaction.
    Error(Error),
    /// The connection is lost and cannot be restored.
    ServerLost(Error),
    /// The last client of its group has completed its share of a slice limited by transactions.
    Done,
    /// The client has left the slice.
    Left,
}

/// Options of a run that apply to each client.
#[derive(Clone, Copy, Debug)]
pub struct ClientRules {
    /// Pacing of a closed loop.
    pub pacing: Pacing,
    /// Maximum number of retries per transaction.
    pub retries_max: u32,
    /// Timeout of preparing a connection.
    pub connect_timeout: Nanos,
}

/// Context of a client in its thread.
pub struct ClientContext<'a, D> {
    /// Group of the client.
    pub group: &'a ClientGroup,
    /// Event loop.
    pub reactor: &'a Reactor,
    /// Connector.
    pub connector: &'a D,
    /// Options.
    pub rules: ClientRules,
    /// Whether it is the first client of its target.
    pub is_first: bool,
    /// Handler of its events.
    pub notify: &'a dyn Fn(ClientEvent),
}

/// A client of a group.
pub struct Client<'a, D, U: User> {
    context: ClientContext<'a, D>,
    /// The simulated user.
    user: U,
    /// Tally of the users of its group.
    tally: &'a RefCell<U::Tally>,
    /// Kind of the drawn transaction that is not yet sent.
    drawn: Option<usize>,
    /// Remaining keying or think time. It is suspended while the group's slice is closed.
    wait: Nanos,
    /// Remaining transactions of its share of the slice.
    left: u64,
    /// Durations of the slice and of its counted part, which is zero if it is not measured.
    durations: (Nanos, Nanos),
    /// Those of the slice before, in which late transactions became due.
    durations_before: (Nanos, Nanos),
}

/// A transaction to send now.
struct Due {
    kind: usize,
    intended: Nanos,
    sent: Nanos,
    is_timed: bool,
}

/// Reason why a client leaves a slice.
enum Leave {
    Closed,
    Lost(Error),
}

impl<'a, D: Connect, U: User> Client<'a, D, U> {
    /// A client that is not yet connected.
    pub fn new(context: ClientContext<'a, D>, user: U, tally: &'a RefCell<U::Tally>) -> Self {
        let none = (Nanos::ZERO, Nanos::ZERO);
        let (drawn, wait) = (None, Nanos::ZERO);
        Self { context, user, tally, drawn, wait, left: 0, durations: none, durations_before: none }
    }

    /// Runs the client. Returns only after a failure; otherwise its loop ends it.
    pub async fn run(mut self) {
        // Rare paths are separate futures on the heap, so that the future polled for each response stays small.
        let mut connection = match Box::pin(self.connect()).await {
            Ok(connection) => connection,
            Err((stage, error)) => return (self.context.notify)(ClientEvent::Failed(stage, error)),
        };
        (self.context.notify)(ClientEvent::Connected);
        let (mut entered, mut served) = (None, None);
        loop {
            match self.context.group.next_assignment(served, self.context.is_first).await {
                Assignment::Calibrate => match Box::pin(self.calibrate(&mut connection)).await {
                    Ok(event) => (self.context.notify)(event),
                    Err(error) => return (self.context.notify)(ClientEvent::Failed("connect", error)),
                },
                Assignment::Slice(window) => {
                    // After a reconnect, the client continues with the rest of its share.
                    if entered.replace(window.serial) != Some(window.serial) {
                        self.left = window.share;
                        self.durations_before = std::mem::replace(&mut self.durations, window.durations());
                    }
                    self.context.group.enter();
                    let leave = self.slice(&window, &mut connection).await;
                    if matches!(leave, Leave::Lost(Error::Abandoned)) {
                        // Before the slice is drained, because a stopped engine exits then.
                        Box::pin(self.context.connector.cancel(&connection)).await;
                    }
                    if self.left == 0 {
                        served = Some(window.serial);
                        if self.context.group.share_is_done() {
                            (self.context.notify)(ClientEvent::Done);
                        }
                    }
                    self.context.group.leave();
                    (self.context.notify)(ClientEvent::Left);
                    match leave {
                        Leave::Closed => served = Some(window.serial),
                        Leave::Lost(error) => match Box::pin(self.reconnect(connection, error)).await {
                            Some(again) => connection = again,
                            None => return,
                        },
                    }
                }
            }
        }
    }

    async fn connect(&mut self) -> Result<Connection, (&'static str, Error)> {
        let mut connection =
            self.context.connector.connect(self.context.reactor).await.map_err(|error| ("connect", error))?;
        let give_up = self.context.reactor.now() + self.context.rules.connect_timeout;
        match self.context.reactor.until(give_up, self.user.prepare(&mut connection)).await {
            Some(Ok(())) => Ok(connection),
            Some(Err(error)) => Err(("prepare", error)),
            None => Err(("prepare", self.timeout("preparing a connection"))),
        }
    }

    /// A timeout of preparing a connection.
    fn timeout(&self, waited_for: &'static str) -> Error {
        Error::Timeout { waited_for, limit: self.context.rules.connect_timeout }
    }

    async fn calibrate(&self, connection: &mut Connection) -> Result<ClientEvent, Error> {
        let reactor = self.context.reactor;
        let give_up = reactor.now() + self.context.rules.connect_timeout;
        let calibrated = reactor.until(give_up, calibrate(reactor, connection)).await;
        calibrated.unwrap_or_else(|| Err(self.timeout("measuring the round trip")))
    }

    /// Drives a slice until it closes, the client completes its share, or the connection is lost.
    async fn slice(&mut self, window: &Window, connection: &mut Connection) -> Leave {
        let mut from = self.context.reactor.now();
        while let Some(Due { mut kind, intended, sent, is_timed }) = self.next(window, from).await {
            self.context.group.begin();
            let mut tries = Tries::default();
            let (outcome, failure) = loop {
                let attempted =
                    self.context.group.unless_abandoned(pin!(self.user.attempt(connection))).await;
                let error = match attempted {
                    Ok(Ending::Committed) => break (Outcome::Ok, None),
                    Ok(Ending::RolledBack) => break (Outcome::RolledBack, None),
                    Err(error) => error,
                };
                let failure = Box::pin(self.restore(error, connection, &mut tries)).await;
                if failure.next != Next::Retry {
                    break (Outcome::Failed, Some(failure));
                }
                (self.context.notify)(ClientEvent::Error(failure.error));
                self.context.group.retry(window, kind);
                kind = self.user.redraw(&mut self.tally.borrow_mut()).unwrap_or(kind);
            };
            let is_committed = outcome == Outcome::Ok;
            self.context.group.count(|counters| self.user.add_to_counters(is_committed, counters));
            let from_now = self.context.reactor.now();
            // The close of the slice, not the last attempt, ends a transaction that is abandoned, or that would be
            // retried in an open one.
            let is_cut_off = failure.as_ref().is_some_and(|failure| {
                failure.next == Next::CutOff || matches!(failure.error, Error::Abandoned)
            });
            let done = if is_cut_off { from_now.min(self.context.group.closes()) } else { from_now };
            let sample = Sample { kind, outcome, intended, sent, done, is_timed };
            self.end(window, &sample, failure.as_ref().map(|failure| failure.why()).as_deref());
            if let Some(failure) = failure {
                if failure.next == Next::Reconnect {
                    if from_now >= self.context.group.closes() {
                        // Skips or gives back what was due in an open loop: no other client may be left to do it.
                        let _ = Box::pin(self.next_arrival(window)).await;
                    }
                    return Leave::Lost(failure.error);
                }
                (self.context.notify)(ClientEvent::Error(failure.error));
            }
            from = from_now;
        }
        Leave::Closed
    }

    /// The next transaction; `None` if the slice closes first, or the share is complete.
    #[inline]
    async fn next(&mut self, window: &Window, from: Nanos) -> Option<Due> {
        if self.left == 0 {
            return None;
        }
        if self.context.group.has_schedule() {
            return self.next_arrival(window).await;
        }
        if self.context.rules.pacing == Pacing::KeyingAndThinking {
            return self.next_keyed(window, from).await;
        }
        if from >= self.context.group.closes() {
            return None;
        }
        let kind = self.draw();
        let mut now = self.context.reactor.now();
        let mut intended = self.user.due((window.opened, window.closes), now);
        while intended > now {
            if !self.context.group.wait_until(intended).await {
                self.drawn = Some(kind);
                return None;
            }
            now = self.context.reactor.now();
            intended = self.user.due((window.opened, window.closes), now);
        }
        let late = window.opened - intended;
        let is_timed = if late > Nanos::ZERO { self.times_late(late) } else { window.times(intended) };
        Some(Due { kind, intended, sent: now, is_timed })
    }

    /// Whether a transaction that was so late when the slice opened became due in the counted part of an earlier one.
    /// All earlier slices are assumed to be like the last one.
    fn times_late(&self, late: Nanos) -> bool {
        let (slice, counted) = self.durations_before;
        counted > Nanos::ZERO && (late.0 - 1) % slice.0 < counted.0
    }

    async fn next_arrival(&mut self, window: &Window) -> Option<Due> {
        let group = self.context.group;
        while self.left > 0 {
            let arrival = group.take_arrival()?;
            let kind = self.draw();
            group.wait_until(arrival.intended).await;
            let (now, closes) = (self.context.reactor.now(), group.closes());
            let (intended, is_timed) = (arrival.intended, arrival.is_timed);
            if now >= closes && (intended >= closes || !window.is_last) {
                group.give_back(arrival);
                self.drawn = Some(kind);
                return None;
            }
            if now < closes && now - intended <= SKIP_LATE_AFTER {
                return Some(Due { kind, intended, sent: now, is_timed });
            }
            group.begin();
            let done = now.min(closes);
            let outcome = Outcome::Skipped;
            let sample = Sample { kind, outcome, intended, sent: done, done, is_timed };
            self.end(window, &sample, None);
        }
        None
    }

    async fn next_keyed(&mut self, window: &Window, from: Nanos) -> Option<Due> {
        let kind = self.drawn.take().unwrap_or_else(|| {
            let kind = self.draw();
            self.wait = self.wait + self.user.keying();
            kind
        });
        let intended = from + self.wait;
        if !self.context.group.wait_until(intended).await {
            self.wait = intended - self.context.group.closes();
            self.drawn = Some(kind);
            return None;
        }
        self.wait = self.user.thinking();
        let sent = self.context.reactor.now();
        Some(Due { kind, intended, sent, is_timed: window.times(intended) })
    }

    #[inline]
    fn draw(&mut self) -> usize {
        match self.drawn.take() {
            Some(kind) => kind,
            None => self.user.draw(&mut self.tally.borrow_mut()),
        }
    }

    /// Records a transaction, which counts in the client's share whatever its outcome.
    #[inline]
    fn end(&mut self, window: &Window, sample: &Sample, why: Option<&str>) {
        self.left -= 1;
        self.context.group.end(window, sample, why);
    }

    /// Restores the session after an error, unless the workload has, and decides what follows.
    async fn restore(
        &self,
        mut error: Error,
        connection: &mut Connection,
        tries: &mut Tries,
    ) -> Box<FailedAttempt> {
        let mut next = Next::Reconnect;
        if !error.is_fatal() {
            let restarts = self.user.restarts();
            next = self.next_after(&error, restarts, tries);
            if !(restarts && next == Next::Retry) {
                let recovered = self.context.group.unless_abandoned(pin!(connection.recover())).await;
                if let Err(failure) = recovered {
                    next = Next::Reconnect;
                    if matches!(failure, Error::Abandoned) {
                        // The driver ends the connection: it is not lost.
                        error = failure;
                    }
                }
            }
        }
        Box::new(FailedAttempt { error, next })
    }

    /// What follows an error that leaves the connection usable.
    fn next_after(&self, error: &Error, restarts: bool, tries: &mut Tries) -> Next {
        if !restarts && (!error.is_retryable() || tries.retries >= self.context.rules.retries_max) {
            return Next::Transaction;
        }
        if self.context.reactor.now() >= self.context.group.closes() {
            if tries.late >= ATTEMPTS_LATE_MAX {
                return Next::CutOff;
            }
            tries.late += 1;
        }
        tries.retries = tries.retries.saturating_add(1);
        Next::Retry
    }

    /// Reconnects, or reports the server as lost.
    async fn reconnect(&mut self, lost: Connection, error: Error) -> Option<Connection> {
        if !matches!(error, Error::Abandoned) {
            self.context.group.record.borrow_mut().connections_lost += 1;
        }
        drop(lost);
        (self.context.notify)(ClientEvent::Error(error));
        let give_up = self.context.reactor.now() + RECONNECT_WITHIN;
        loop {
            match self.connect().await {
                Ok(connection) => return Some(connection),
                Err((_, error)) if self.context.reactor.now() >= give_up => {
                    (self.context.notify)(ClientEvent::ServerLost(error));
                    return None;
                }
                Err(_) => {
                    self.context.reactor.sleep_until(self.context.reactor.now() + RECONNECT_EVERY).await;
                }
            }
        }
    }
}

/// Attempts at a transaction beyond the first.
#[derive(Default)]
struct Tries {
    retries: u32,
    /// Those after the close of the slice.
    late: u32,
}

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Another attempt at the same transaction.
    Retry,
    /// Another transaction: this one is not retried.
    Transaction,
    /// Another transaction: this one would be retried, but its slice has closed.
    CutOff,
    /// A new connection.
    Reconnect,
}

/// A failed attempt.
struct FailedAttempt {
    error: Error,
    next: Next,
}

impl FailedAttempt {
    /// The SQLSTATE, or a word if the server sent none.
    fn why(&self) -> String {
        match (&self.error, self.error.sqlstate()) {
            (_, Some(sqlstate)) => sqlstate.as_str().to_owned(),
            (Error::Abandoned, None) => "abandoned".to_owned(),
            (Error::Workload(_), None) => "workload".to_owned(),
            _ => "connection".to_owned(),
        }
    }
}

async fn calibrate(reactor: &Reactor, connection: &mut Connection) -> Result<ClientEvent, Error> {
    let version = connection.simple("SHOW server_version").await?;
    let server_version = version.into_iter().flatten().flatten().next().unwrap_or_default();
    let mut round_trips = Histogram::default();
    for _ in 0..CALIBRATION_ROUNDS {
        let sent = reactor.now();
        connection.simple("").await?;
        round_trips.record(reactor.now() - sent);
    }
    Ok(ClientEvent::Calibrated { round_trips, server_version })
}
