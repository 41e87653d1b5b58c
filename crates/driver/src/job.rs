//! What one target's clients do, whichever workload it is: targets of one run may have different ones.

use std::cell::RefCell;
use std::sync::Mutex;

use serde_json::Value;

use super::client::{Client, Place};
use super::connector::Door;
use super::{Seat, Tally, Workload};
use reactor::Routine;

/// The workload of one target. Its type is known to the clients alone, so that they call it directly.
pub trait Job: Sync {
    /// See [`Workload::kinds`].
    fn kinds(&self) -> Vec<&str>;

    /// See [`Workload::counters`].
    fn counters(&self) -> &'static [&'static str];

    /// A thread's share.
    fn shift(&self) -> Box<dyn Shift + '_>;

    /// The tally of all shifts that have ended.
    fn tally(&self) -> Value;
}

/// What a thread's clients of one target share of their workload.
pub trait Shift {
    /// The client that takes a seat, ready to run.
    fn client<'a>(&'a self, seat: Seat, place: Place<'a, Door<'a>>) -> Routine<'a>;

    /// Hands the tally in.
    fn end(&self);
}

/// A workload, and what has been counted of it.
struct OneJob<W: Workload> {
    workload: W,
    tally: Mutex<W::Tally>,
}

/// A workload of any type, as a run takes it.
pub struct AnyWorkload(Box<dyn Job>);

impl AnyWorkload {
    /// Takes a workload.
    #[must_use]
    pub fn new<W: Workload + 'static>(workload: W) -> Self {
        Self(Box::new(OneJob { workload, tally: Mutex::default() }))
    }

    pub(super) fn job(&self) -> &dyn Job {
        &*self.0
    }
}

impl<W: Workload> Job for OneJob<W> {
    fn kinds(&self) -> Vec<&str> {
        self.workload.kinds()
    }

    fn counters(&self) -> &'static [&'static str] {
        self.workload.counters()
    }

    fn shift(&self) -> Box<dyn Shift + '_> {
        Box::new(OneShift { job: self, tally: RefCell::default() })
    }

    fn tally(&self) -> Value {
        self.workload.tally(&self.tally.lock().expect("a tally that was merged to its end"))
    }
}

struct OneShift<'a, W: Workload> {
    job: &'a OneJob<W>,
    tally: RefCell<W::Tally>,
}

impl<W: Workload> Shift for OneShift<'_, W> {
    fn client<'a>(&'a self, seat: Seat, place: Place<'a, Door<'a>>) -> Routine<'a> {
        Box::pin(Client::new(place, self.job.workload.user(seat), &self.tally).run())
    }

    fn end(&self) {
        self.job.tally.lock().expect("a tally that was merged to its end").merge(&self.tally.borrow());
    }
}
