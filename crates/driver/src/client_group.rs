//! Clients of one target in one thread: their open slice and their record.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use super::schedule::{Arrival, Schedule, Window};
use crate::record::{Histogram, Outcome, Recorder, Sample};
use reactor::{Error, Gate, Nanos, Reactor};

/// The next task of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// Drive the open slice.
    Slice(Window),
    /// Measure round trips of an empty query. For the first client of a target only.
    Calibrate,
}

/// Clients of one target in one thread.
pub struct ClientGroup {
    reactor: Reactor,
    gate: Gate,
    window: Cell<Option<Window>>,
    calibrate: Cell<bool>,
    abandon: Cell<bool>,
    clients: u32,
    /// Number of clients that wait for a task.
    idle: Cell<u32>,
    /// Number of clients that waited for the slice when it was opened, and have not entered it yet.
    called: Cell<u32>,
    /// Number of clients in the slice.
    active: Cell<u32>,
    /// Number of clients that have not completed their share of the slice.
    undone: Cell<u32>,
    /// Number of abandoned transactions of this slice.
    abandoned: Cell<u32>,
    /// See [`Recorder`].
    pub record: RefCell<Recorder>,
    /// Total time of the clients in transactions after the close of this slice.
    overtime: Cell<Nanos>,
    /// Lateness of the clients' deadlines.
    pub lateness: RefCell<Histogram>,
    /// The arrivals, in an open loop.
    schedule: Option<RefCell<Schedule>>,
}

impl ClientGroup {
    /// A group of clients without an open slice. With `schedule` the loop is open.
    pub fn new(reactor: &Reactor, record: Recorder, clients: u32, schedule: Option<Schedule>) -> Self {
        Self {
            reactor: reactor.clone(),
            gate: Gate::default(),
            window: Cell::default(),
            calibrate: Cell::default(),
            abandon: Cell::default(),
            clients,
            idle: Cell::default(),
            called: Cell::default(),
            active: Cell::default(),
            undone: Cell::default(),
            abandoned: Cell::default(),
            record: RefCell::new(record),
            overtime: Cell::default(),
            lateness: RefCell::default(),
            schedule: schedule.map(RefCell::new),
        }
    }

    // ---- commands

    /// Opens a slice.
    pub fn open(&self, window: Window) {
        self.abandon.set(false);
        self.abandoned.set(0);
        self.undone.set(self.clients);
        self.overtime.set(Nanos::ZERO);
        self.called.set(self.idle.get());
        if let Some(schedule) = &self.schedule {
            schedule.borrow_mut().resume(&window);
        }
        self.window.set(Some(window));
        self.gate.notify(&self.reactor);
    }

    /// Closes the open slice now, unless it has closed.
    pub fn close(&self) {
        if let Some(window) = self.window.get() {
            let closes = window.closes.min(self.reactor.now());
            self.window.set(Some(Window { closes, ..window }));
            self.reactor.wake_all();
        }
    }

    /// Abandons the transactions in flight.
    pub fn abandon(&self) {
        self.abandon.set(true);
        self.reactor.wake_all();
    }

    /// Requests a calibration.
    pub fn calibrate(&self) {
        self.calibrate.set(true);
        self.gate.notify(&self.reactor);
    }

    /// If the slice is closed and its last transaction has ended, removes it and returns the number of
    /// abandoned transactions.
    pub fn take_drained(&self) -> Option<u32> {
        let window = self.window.get()?;
        // A thread that was stopped may get both commands at once. Its clients still count what was due.
        let are_in_slice = self.called.get() + self.active.get() > 0;
        if are_in_slice || self.reactor.now() < window.closes {
            return None;
        }
        self.window.set(None);
        if let Some(schedule) = &self.schedule {
            // Transactions in flight at the close use server time after it. Clients pay it back by waiting,
            // because otherwise each slice gives the server more time than its arrivals.
            let each = Nanos(self.overtime.get().0 / u64::from(self.clients.max(1)));
            schedule.borrow_mut().pause(window.closes + each);
        }
        Some(self.abandoned.get())
    }

    // ---- clients

    /// Waits for a task other than slice `served`.
    pub async fn next_assignment(&self, served: Option<u32>, is_first: bool) -> Assignment {
        let next = || {
            if is_first && self.calibrate.take() {
                return Some(Assignment::Calibrate);
            }
            match self.window.get() {
                Some(window) if Some(window.serial) != served => Some(Assignment::Slice(window)),
                _ => None,
            }
        };
        if let Some(assignment) = next() {
            return assignment;
        }
        self.idle.set(self.idle.get() + 1);
        let assignment = self.gate.wait(&self.reactor, next).await;
        self.idle.set(self.idle.get() - 1);
        if matches!(assignment, Assignment::Slice(_)) {
            self.called.set(self.called.get() - 1);
        }
        assignment
    }

    /// A client enters the slice.
    pub fn enter(&self) {
        self.active.set(self.active.get() + 1);
    }

    /// Records that a client has completed its share. Returns whether it is the last one.
    pub fn share_is_done(&self) -> bool {
        self.undone.set(self.undone.get() - 1);
        self.undone.get() == 0
    }

    /// A client leaves the slice.
    pub fn leave(&self) {
        self.active.set(self.active.get() - 1);
    }

    /// Whether a slice is open, or closed but not drained.
    pub fn is_open(&self) -> bool {
        self.window.get().is_some()
    }

    /// Whether it has any clients.
    pub fn has_clients(&self) -> bool {
        self.clients > 0
    }

    /// The current instant.
    pub fn now(&self) -> Nanos {
        self.reactor.now()
    }

    /// When the open slice closes.
    #[inline]
    pub fn closes(&self) -> Nanos {
        self.window.get().map_or(Nanos::ZERO, |window| window.closes)
    }

    /// Whether the loop is open.
    #[inline]
    pub fn has_schedule(&self) -> bool {
        self.schedule.is_some()
    }

    /// Takes the next arrival of an open loop that is due before the slice closes.
    pub fn take_arrival(&self) -> Option<Arrival> {
        self.schedule.as_ref()?.borrow_mut().take_before(self.closes())
    }

    /// See [`Schedule::give_back`].
    pub fn give_back(&self, arrival: Arrival) {
        if let Some(schedule) = &self.schedule {
            schedule.borrow_mut().give_back(arrival);
        }
    }

    /// Waits until `at`. Returns whether the slice is still open then.
    pub async fn wait_until(&self, at: Nanos) -> bool {
        let mut end = at.min(self.closes());
        if self.reactor.now() >= end {
            return at < self.closes();
        }
        loop {
            let mut sleep = std::pin::pin!(self.reactor.sleep_until(end));
            // Closing a slice early changes its end and wakes this future.
            let is_closed = poll_fn(|context| {
                if self.closes() < end {
                    return Poll::Ready(true);
                }
                sleep.as_mut().poll(context).map(|()| false)
            });
            if !is_closed.await {
                self.lateness.borrow_mut().record(self.reactor.now() - end);
                return at < self.closes();
            }
            end = self.closes();
        }
    }

    /// Runs `future` until the slice's transactions are abandoned.
    #[inline]
    pub fn unless_abandoned<V>(
        &self,
        mut future: Pin<&mut impl Future<Output = Result<V, Error>>>,
    ) -> impl Future<Output = Result<V, Error>> {
        poll_fn(move |context| {
            if self.abandon.get() {
                self.abandoned.set(self.abandoned.get() + 1);
                return Poll::Ready(Err(Error::Abandoned));
            }
            future.as_mut().poll(context)
        })
    }

    /// Records the start of a transaction, which must have an outcome.
    #[inline]
    pub fn begin(&self) {
        self.record.borrow_mut().begun += 1;
    }

    /// Lets a workload add to its counters.
    #[inline]
    pub fn count(&self, add: impl FnOnce(&mut [u64])) {
        add(&mut self.record.borrow_mut().counters);
    }

    /// Records another attempt at a transaction.
    pub fn retry(&self, window: &Window, kind: usize) {
        let now = self.reactor.now();
        let is_counted = window.is_measured && now >= window.counted_from && now <= self.closes();
        self.record.borrow_mut().add_retry(kind, is_counted);
    }

    /// Records the outcome of a transaction. `why`: reason of a failure.
    #[inline]
    pub fn end(&self, window: &Window, sample: &Sample, why: Option<&str>) {
        // `closes` may have changed since the client entered.
        let closes = self.closes();
        let is_in_time = sample.done <= closes;
        if !is_in_time {
            self.overtime.set(self.overtime.get() + (sample.done - closes));
        }
        let is_counted = if sample.outcome == Outcome::Skipped {
            sample.is_timed
        } else {
            window.is_measured && is_in_time && sample.done >= window.counted_from
        };
        let mut record = self.record.borrow_mut();
        record.add(sample, is_counted);
        if let (Some(why), true) = (why, is_counted) {
            record.add_failure(sample.kind, why);
        }
    }
}
