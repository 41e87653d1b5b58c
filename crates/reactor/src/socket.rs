//! Sockets that do not block.
//!
//! A socket that has joined the loop's [`Ring`](super::ring::Ring) sends and waits through it instead. What epoll would
//! have told of it, the ring tells.

use std::future::poll_fn;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::task::Poll;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::Error;
use super::reactor::Reactor;
use super::readiness::Readiness;
use super::ring::Ring;

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
