//! Readiness of sockets.
//!
//! epoll reports edges of received data only. Writability is requested after a write has found no space.
//! (Otherwise a Unix socket reports it each time the server reads a request, once per transaction.)

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::event::epoll::{self, EventData, EventFlags};

use super::Error;
use super::timers::Task;

/// Readiness of one socket, and the waiting task.
#[derive(Default)]
pub(super) struct Readiness {
    /// Data may be available: an edge was reported, and no read has found the end since.
    pub(super) readable: Cell<bool>,
    /// Space was reported since a write found none.
    pub(super) writable: Cell<bool>,
    /// The peer closed the connection. Reads continue until the end of the stream.
    pub(super) hung_up: Cell<bool>,
    pub(super) task: Cell<Option<Task>>,
}

/// The sockets of a loop by their epoll number.
#[derive(Default)]
pub(super) struct Sources {
    readiness: Vec<Option<Rc<Readiness>>>,
    free: Vec<u64>,
}

const READS: EventFlags = EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ET);

impl Sources {
    pub(super) fn add(&mut self, epoll: &OwnedFd, socket: &OwnedFd) -> Result<(u64, Rc<Readiness>), Error> {
        let slot = self.free.pop().unwrap_or(self.readiness.len() as u64);
        epoll::add(epoll, socket, EventData::new_u64(slot), READS)
            .map_err(|e| Error::system("watch a socket", e))?;
        let readiness = Rc::new(Readiness::default());
        if slot as usize == self.readiness.len() {
            self.readiness.push(None);
        }
        self.readiness[slot as usize] = Some(Rc::clone(&readiness));
        Ok((slot, readiness))
    }

    pub(super) fn watch_writes(
        epoll: &OwnedFd,
        socket: &OwnedFd,
        slot: u64,
        watch: bool,
    ) -> Result<(), Error> {
        let flags = if watch { READS | EventFlags::OUT } else { READS };
        epoll::modify(epoll, socket, EventData::new_u64(slot), flags)
            .map_err(|e| Error::system("watch a socket for room", e))
    }

    pub(super) fn remove(&mut self, slot: u64) {
        self.readiness[slot as usize] = None;
        self.free.push(slot);
    }

    /// Records an event and returns the task to wake.
    pub(super) fn happened(&self, slot: u64, flags: EventFlags) -> Option<Task> {
        let readiness = self.readiness.get(slot as usize)?.as_ref()?;
        let closed = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        if closed || flags.contains(EventFlags::OUT) {
            readiness.sendable();
        }
        if closed || flags.contains(EventFlags::IN) {
            readiness.receivable(closed);
        }
        readiness.task.get()
    }
}

impl Readiness {
    /// Records that data may be received, or that the peer may have closed. Returns the task to wake.
    pub(super) fn receivable(&self, closed: bool) -> Option<Task> {
        self.readable.set(true);
        if closed {
            self.hung_up.set(true);
        }
        self.task.get()
    }

    /// Records that data can be sent. Returns the task to wake.
    pub(super) fn sendable(&self) -> Option<Task> {
        self.writable.set(true);
        self.task.get()
    }
}
