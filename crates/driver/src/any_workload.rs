//! Type-erased workloads: the targets of a run may have different ones.

use std::cell::RefCell;
use std::sync::Mutex;

use serde_json::Value;

use super::client::{Client, ClientContext};
use super::connector::Connector;
use super::{ClientId, Tally, Workload};
use reactor::Routine;

/// The workload of one target. Only the clients know its type, so that they call it directly.
pub trait DynWorkload: Sync {
    /// See [`Workload::kinds`].
    fn kinds(&self) -> Vec<&str>;

    /// See [`Workload::counters`].
    fn counters(&self) -> &'static [&'static str];

    /// See [`Workload::has_due_times`].
    fn has_due_times(&self) -> bool;

    /// Creates the part of one thread.
    fn workload_thread(&self) -> Box<dyn WorkloadThread + '_>;

    /// The tally of all threads that have ended.
    fn tally(&self) -> Value;
}

/// State of a workload that the clients of one thread share.
pub trait WorkloadThread {
    /// Creates a client, ready to run.
    fn client<'a>(&'a self, client_id: ClientId, context: ClientContext<'a, Connector<'a>>) -> Routine<'a>;

    /// Merges the tally of this thread into the total.
    fn end(&self);
}

/// A workload and its tally.
struct TypedWorkload<W: Workload> {
    workload: W,
    tally: Mutex<W::Tally>,
}

/// A workload of any type.
pub type AnyWorkload = Box<dyn DynWorkload>;

/// Erases the type of a workload.
pub fn erase<W: Workload + 'static>(workload: W) -> AnyWorkload {
    Box::new(TypedWorkload { workload, tally: Mutex::default() })
}

impl<W: Workload> DynWorkload for TypedWorkload<W> {
    fn kinds(&self) -> Vec<&str> {
        self.workload.kinds()
    }

    fn counters(&self) -> &'static [&'static str] {
        self.workload.counters()
    }

    fn has_due_times(&self) -> bool {
        self.workload.has_due_times()
    }

    fn workload_thread(&self) -> Box<dyn WorkloadThread + '_> {
        Box::new(TypedThread { workload: self, tally: RefCell::default() })
    }

    fn tally(&self) -> Value {
        self.tally.lock().expect("a tally that was merged to its end").value()
    }
}

struct TypedThread<'a, W: Workload> {
    workload: &'a TypedWorkload<W>,
    tally: RefCell<W::Tally>,
}

impl<W: Workload> WorkloadThread for TypedThread<'_, W> {
    fn client<'a>(&'a self, client_id: ClientId, context: ClientContext<'a, Connector<'a>>) -> Routine<'a> {
        Box::pin(Client::new(context, self.workload.workload.user(client_id), &self.tally).run())
    }

    fn end(&self) {
        self.workload.tally.lock().expect("a tally that was merged to its end").merge(&self.tally.borrow());
    }
}
