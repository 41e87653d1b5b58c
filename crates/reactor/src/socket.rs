//! Sockets that do not block, and what is known of their readiness.
//!
//! epoll reports edges, and only that bytes have come: room to write is asked for when a write found none.
//! (A Unix socket would otherwise report room each time the server takes a request out, which is once a transaction.)
//!
//! A socket that has joined the loop's [`Ring`](super::ring::Ring) sends and waits through it instead. What epoll would
//! have told of it, the ring tells.

use std::cell::Cell;
use std::future::poll_fn;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::task::Poll;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::Error;
use super::reactor::{Reactor, Task};
use super::ring::Ring;

/// What the kernel has told of one socket, and who wants to know.
#[derive(Default)]
pub(super) struct Readiness {
    /// Bytes may be there: an edge came, and no read since has found the end of them.
    readable: Cell<bool>,
    /// Room came since a write found none.
    writable: Cell<bool>,
    /// The peer closed. Reads go on until they find the end.
    hung_up: Cell<bool>,
    task: Cell<Option<Task>>,
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

/// Who watches a socket, and its number there.
#[derive(Clone, Copy)]
enum Watched {
    Epoll(u64),
    Ring(u32),
}

/// A socket (or an eventfd) that a loop watches.
pub struct Socket {
    fd: OwnedFd,
    watched: Watched,
    readiness: Rc<Readiness>,
    reactor: Reactor,
}

impl Socket {
    /// Takes a file descriptor that does not block.
    pub fn new(reactor: &Reactor, fd: OwnedFd) -> Result<Self, Error> {
        let (slot, readiness) = reactor.register(&fd)?;
        Ok(Self { fd, watched: Watched::Epoll(slot), readiness, reactor: reactor.clone() })
    }

    /// From now on through the loop's ring, if it has one: for a connected socket that carries small requests.
    pub(crate) fn join_ring(&mut self) {
        if let (Watched::Epoll(slot), Some(ring)) = (self.watched, self.reactor.ring()) {
            self.reactor.forget(&self.fd, slot);
            // What epoll knew is forgotten: there may be something.
            self.readiness.readable.set(true);
            self.watched = Watched::Ring(ring.join(&self.fd, &self.readiness));
        }
    }

    /// The ring and the number of our line, if we have joined it.
    #[inline]
    fn line(&self) -> Option<(&Ring, u32)> {
        match self.watched {
            Watched::Ring(line) => self.reactor.ring().map(|ring| (ring, line)),
            Watched::Epoll(_) => None,
        }
    }

    pub(super) fn reactor(&self) -> &Reactor {
        &self.reactor
    }

    /// Sends what the kernel takes of `bytes` now, by the ring all of them with its next turn; `None` when none.
    #[inline]
    pub fn send(&self, bytes: &[u8]) -> Result<Option<usize>, Error> {
        if let Some((ring, line)) = self.line() {
            return ring.send(line, bytes, |task| self.reactor.wake(task));
        }
        loop {
            match rustix::net::send(&self.fd, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => return Ok(Some(sent)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(Error::Closed),
                Err(errno) => return Err(Error::system("send to the server", errno)),
            }
        }
    }

    /// Whether epoll or the ring said that something may have come, and no read has found the end of it since.
    #[inline]
    pub(super) fn is_readable(&self) -> bool {
        self.readiness.readable.get()
    }

    /// Forgets that something came: for an eventfd, which rings anew with each write, read or not.
    pub(super) fn acknowledge(&self) {
        self.readiness.readable.set(false);
    }

    /// Receives into `space`; `None` when nothing is there after all.
    #[inline]
    pub fn receive(&self, space: &mut [u8]) -> Result<Option<usize>, Error> {
        if let Some((ring, line)) = self.line() {
            // The kernel may be receiving then: no bytes may be taken past it.
            if !self.readiness.readable.get() {
                return Ok(None);
            }
            if let Some((received, more)) = ring.take(line, space)? {
                self.readiness.readable.set(more || self.readiness.hung_up.get());
                return Ok(Some(received));
            }
        }
        let asked = space.len();
        loop {
            match rustix::net::recv(&self.fd, &mut *space, RecvFlags::empty()) {
                Ok((0, _)) | Err(Errno::CONNRESET | Errno::PIPE) => return Err(Error::Closed),
                Ok((received, _)) => {
                    // Less than asked for means that the kernel has no more: the next bytes make a new edge.
                    // The end of the stream may have come with the last edge, though, and would make none.
                    if received < asked && !self.readiness.hung_up.get() {
                        self.readiness.readable.set(false);
                    }
                    return Ok(Some(received));
                }
                Err(Errno::AGAIN) => {
                    self.readiness.readable.set(false);
                    return Ok(None);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::system("receive from the server", errno)),
            }
        }
    }

    /// Waits until something can be received.
    #[inline]
    pub async fn readable(&self) -> Result<(), Error> {
        poll_fn(|_| {
            if self.readiness.readable.get() {
                return Poll::Ready(Ok(()));
            }
            if let Some((ring, line)) = self.line() {
                ring.listen(line)?;
            }
            self.readiness.task.set(Some(self.reactor.current()));
            Poll::Pending
        })
        .await
    }

    /// Waits for room to send, or for bytes to receive: who only waits for room, while the server waits for us to
    /// take what it sent, waits for ever.
    pub(super) async fn writable_or_readable(&self) -> Result<(), Error> {
        self.room_or(|| self.readiness.readable.get()).await
    }

    /// Waits for room to send: an ended connect, too.
    pub(super) async fn writable(&self) -> Result<(), Error> {
        self.room_or(|| false).await
    }

    /// Waits for room to send, or until `enough`.
    async fn room_or(&self, enough: impl Fn() -> bool) -> Result<(), Error> {
        self.readiness.writable.set(false);
        self.watch_writes(true)?;
        poll_fn(|_| {
            if self.readiness.writable.get() || enough() {
                return Poll::Ready(());
            }
            self.readiness.task.set(Some(self.reactor.current()));
            Poll::Pending
        })
        .await;
        self.watch_writes(false)
    }

    fn watch_writes(&self, watch: bool) -> Result<(), Error> {
        match self.watched {
            Watched::Epoll(slot) => self.reactor.watch_writes(&self.fd, slot, watch),
            // It tells of room by itself; of what comes meanwhile only if it is asked to.
            Watched::Ring(line) if !self.readiness.readable.get() => {
                self.reactor.ring().map_or(Ok(()), |ring| ring.listen(line))
            }
            Watched::Ring(_) => Ok(()),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        match self.watched {
            Watched::Epoll(slot) => self.reactor.forget(&self.fd, slot),
            Watched::Ring(line) => self.reactor.leave_ring(line, &self.fd),
        }
    }
}
