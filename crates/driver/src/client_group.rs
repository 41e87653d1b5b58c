//! The clients of one target in one thread: the slice that is open for them, and what they record.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::task::Poll;

use super::schedule::{Arrival, Schedule};
use crate::record::{Histogram, Outcome, Recorder, Sample};
use reactor::{Error, Gate, Nanos, Reactor};

/// One slice, as its clients see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Index of the slice.
    pub serial: u32,
    /// Index of its target.
    pub target: usize,
    /// Whether it counts.
    pub is_measured: bool,
    /// Whether it is the target's last one: nothing can wait for a later one.
    pub is_last: bool,
    /// When it opens,
    pub opened: Nanos,
    /// from when on its transactions count,
    pub counted_from: Nanos,
    /// and when it closes: no transaction is sent from then on.
    pub closes: Nanos,
    /// As many transactions as each client does in it, at most: beyond any number where only time bounds it.
    pub share: u64,
}

impl Window {
    /// Whether the latency of a transaction counts that was intended at this instant, before the close.
    #[inline]
    pub fn times(&self, intended: Nanos) -> bool {
        self.is_measured && intended >= self.counted_from
    }
}

/// What a client does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// Drives the slice that is open.
    Slice(Window),
    /// Measures the round trip of an empty query; only the first client of a target is asked.
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
    /// Clients between entering the slice and leaving it.
    active: Cell<u32>,
    /// Clients that have not done their share of the slice.
    undone: Cell<u32>,
    /// Transactions of this slice that were given up because they did not end in time.
    abandoned: Cell<u32>,
    /// See [`Recorder`].
    pub record: RefCell<Recorder>,
    /// Time that the clients spent after the close of this slice on transactions in flight, added up.
    overtime: Cell<Nanos>,
    /// How late the clients' deadlines were served.
    pub lateness: RefCell<Histogram>,
    /// The arrivals, in an open loop.
    schedule: Option<RefCell<Schedule>>,
}

impl ClientGroup {
    /// A group of so many clients without an open slice; `schedule` makes their loop an open one.
    pub fn new(reactor: &Reactor, record: Recorder, clients: u32, schedule: Option<Schedule>) -> Self {
        Self {
            reactor: reactor.clone(),
            gate: Gate::default(),
            window: Cell::default(),
            calibrate: Cell::default(),
            abandon: Cell::default(),
            clients,
            active: Cell::default(),
            undone: Cell::default(),
            abandoned: Cell::default(),
            record: RefCell::new(record),
            overtime: Cell::default(),
            lateness: RefCell::default(),
            schedule: schedule.map(RefCell::new),
        }
    }

    // ---- orders

    /// Opens a slice.
    pub fn open(&self, window: Window) {
        self.abandon.set(false);
        self.abandoned.set(0);
        self.undone.set(self.clients);
        self.overtime.set(Nanos::ZERO);
        if let Some(schedule) = &self.schedule {
            schedule.borrow_mut().resume(&window);
        }
        self.window.set(Some(window));
        self.gate.notify(&self.reactor);
    }

    /// Closes the open slice now, if it was to close later.
    pub fn close(&self) {
        if let Some(window) = self.window.get() {
            let closes = window.closes.min(self.reactor.now());
            self.window.set(Some(Window { closes, ..window }));
            self.reactor.wake_all();
        }
    }

    /// Gives up the transactions that are still in flight.
    pub fn abandon(&self) {
        self.abandon.set(true);
        self.reactor.wake_all();
    }

    /// Asks for a calibration.
    pub fn calibrate(&self) {
        self.calibrate.set(true);
        self.gate.notify(&self.reactor);
    }

    /// If the slice has closed and its last transaction has ended: forgets it, and gives the number of transactions that
    /// had to be given up.
    pub fn take_drained(&self) -> Option<(Window, u32)> {
        let window = self.window.get()?;
        if self.active.get() > 0 || self.reactor.now() < window.closes {
            return None;
        }
        self.window.set(None);
        if let Some(schedule) = &self.schedule {
            // Transactions in flight at the close get the server's time after it. The clients have to pay for this time:
            // otherwise each slice would give the server more time than its arrivals have.
            let each = Nanos(self.overtime.get().0 / u64::from(self.clients.max(1)));
            schedule.borrow_mut().pause(window.closes + each);
        }
        Some((window, self.abandoned.get()))
    }

    // ---- clients

    /// Waits for something to do that is not slice `served`.
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
        self.gate.wait(&self.reactor, next).await
    }

    /// A client enters the slice.
    pub fn enter(&self) {
        self.active.set(self.active.get() + 1);
    }

    /// A client has done its share of the slice; whether it is the last one.
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

    /// Whether it has clients at all.
    pub fn has_clients(&self) -> bool {
        self.clients > 0
    }

    /// The present instant.
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

    /// Waits until `at`; true if the slice is still open then, false if it closes before.
    pub async fn wait_until(&self, at: Nanos) -> bool {
        let mut end = at.min(self.closes());
        if self.reactor.now() >= end {
            return at < self.closes();
        }
        loop {
            let mut sleep = std::pin::pin!(self.reactor.sleep_until(end));
            // A slice that is closed early moves its end: whoever closes it wakes us.
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

    /// Runs `future`, unless the slice's transactions are given up meanwhile.
    #[inline]
    pub async fn unless_abandoned<V>(
        &self,
        future: impl Future<Output = Result<V, Error>>,
    ) -> Result<V, Error> {
        let mut future = std::pin::pin!(future);
        poll_fn(|context| {
            if self.abandon.get() {
                self.abandoned.set(self.abandoned.get() + 1);
                return Poll::Ready(Err(Error::Abandoned));
            }
            future.as_mut().poll(context)
        })
        .await
    }

    /// Notes that a transaction begins: it will have to have an outcome.
    #[inline]
    pub fn begin(&self) {
        self.record.borrow_mut().begun += 1;
    }

    /// Lets a workload add to its counters.
    #[inline]
    pub fn count(&self, add: impl FnOnce(&mut [u64])) {
        add(&mut self.record.borrow_mut().counters);
    }

    /// Records a transaction's outcome; `why` it failed, if it did.
    #[inline]
    pub fn end(&self, window: &Window, sample: &Sample, why: Option<&str>) {
        // `closes` may have moved since the client entered.
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
