//! What is known of the readiness of sockets.
//!
//! epoll reports edges, and only that bytes have come: room to write is asked for when a write found none.
//! (A Unix socket would otherwise report room each time the server takes a request out, which is once a transaction.)

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::event::epoll::{self, EventData, EventFlags};

use super::Error;
use super::task::Task;

/// What the kernel has told of one socket, and who wants to know.
#[derive(Default)]
pub(super) struct Readiness {
    /// Bytes may be there: an edge came, and no read since has found the end of them.
    pub(super) readable: Cell<bool>,
    /// Room came since a write found none.
    pub(super) writable: Cell<bool>,
    /// The peer closed. Reads go on until they find the end.
    pub(super) hung_up: Cell<bool>,
    pub(super) task: Cell<Option<Task>>,
}

/// The sockets of one loop by the number that epoll carries for them.
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

    /// Notes an event and says whom it wakes.
    pub(super) fn happened(&self, slot: u64, flags: EventFlags) -> Option<Task> {
        let readiness = self.readiness.get(slot as usize)?.as_ref()?;
        let closed = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        if closed || flags.contains(EventFlags::IN) {
            readiness.readable.set(true);
        }
        if closed {
            readiness.hung_up.set(true);
        }
        if closed || flags.contains(EventFlags::OUT) {
            readiness.writable.set(true);
        }
        readiness.task.get()
    }
}

impl Readiness {
    /// Notes that there is something to receive, and whether the peer may have closed; says whom that wakes.
    pub(super) fn receivable(&self, closed: bool) -> Option<Task> {
        self.readable.set(true);
        if closed {
            self.hung_up.set(true);
        }
        self.task.get()
    }

    /// Notes that there is room to send, and says whom that wakes.
    pub(super) fn sendable(&self) -> Option<Task> {
        self.writable.set(true);
        self.task.get()
    }
}
