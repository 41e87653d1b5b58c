//! Nonblocking sockets.
//!
//! A socket in the loop's [`Ring`](super::ring::Ring) sends and waits through it. The ring then reports what
//! epoll would.

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

/// Source of readiness, and the socket's number there.
#[derive(Clone, Copy)]
enum Watched {
    Epoll(u64),
    Ring(u32),
}

/// A socket (or an eventfd) registered with a loop.
pub struct Socket {
    fd: OwnedFd,
    watched: Watched,
    readiness: Rc<Readiness>,
    reactor: Reactor,
}

impl Socket {
    /// Registers a nonblocking file descriptor.
    pub fn new(reactor: &Reactor, fd: OwnedFd) -> Result<Self, Error> {
        let (slot, readiness) = reactor.register(&fd)?;
        Ok(Self { fd, watched: Watched::Epoll(slot), readiness, reactor: reactor.clone() })
    }

    /// Switches to the loop's ring, if there is one. For a connected socket with small requests.
    pub(crate) fn join_ring(&mut self) {
        if let (Watched::Epoll(slot), Some(ring)) = (self.watched, self.reactor.ring()) {
            self.reactor.forget(&self.fd, slot);
            // The readiness from epoll is lost: assume that there is something.
            self.readiness.readable.set(true);
            self.watched = Watched::Ring(ring.join(&self.fd, &self.readiness));
        }
    }

    /// The ring and the number of the socket's line, if it has one.
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

    /// An empty buffer for [`Socket::send`].
    #[inline]
    pub(super) fn send_buffer(&self) -> Vec<u8> {
        match self.line() {
            Some((ring, line)) => ring.send_buffer(line),
            None => self.reactor.pool().take_to_send(),
        }
    }

    /// Sends `out[from..]`: the part that the kernel accepts now. The ring takes the buffer instead, and sends all
    /// of it with its next turn. `None` if nothing is accepted.
    #[inline]
    pub fn send(&self, out: &mut Vec<u8>, from: usize) -> Result<Option<usize>, Error> {
        if let Some((ring, line)) = self.line() {
            return ring.send(line, out, |task| self.reactor.wake(task));
        }
        loop {
            match rustix::net::send(&self.fd, &out[from..], SendFlags::NOSIGNAL) {
                Ok(sent) => return Ok(Some(sent)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(Error::Closed),
                Err(errno) => return Err(Error::system("send to the server", errno)),
            }
        }
    }

    /// Whether readiness was reported and no read has found the end of the data since.
    #[inline]
    pub(super) fn is_readable(&self) -> bool {
        self.readiness.readable.get()
    }

    /// Clears the readiness of an eventfd, which signals again with each write, whether it is read or not.
    pub(super) fn acknowledge(&self) {
        self.readiness.readable.set(false);
    }

    /// Receives into `space`; `None` if there is nothing.
    #[inline]
    pub fn receive(&self, space: &mut [u8]) -> Result<Option<usize>, Error> {
        if let Some((ring, line)) = self.line() {
            // The kernel may be receiving: no bytes may overtake it.
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
                    // A short read means that the kernel has no more: the next bytes cause a new edge. The end
                    // of the stream may have come with the last edge, though, and would not cause another.
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

    /// Waits until data can be received.
    #[inline]
    pub async fn readable(&self) {
        poll_fn(|_| {
            if self.readiness.readable.get() {
                return Poll::Ready(());
            }
            if let Some((ring, line)) = self.line() {
                ring.listen(line);
            }
            self.readiness.task.set(Some(self.reactor.current()));
            Poll::Pending
        })
        .await;
    }

    /// Waits until data can be sent or received.
    ///
    /// Waiting only to send can deadlock: the server may wait until its data is received.
    pub(super) async fn writable_or_readable(&self) -> Result<(), Error> {
        self.room_or(|| self.readiness.readable.get()).await
    }

    /// Waits until data can be sent, or until a connect completes.
    pub(super) async fn writable(&self) -> Result<(), Error> {
        self.room_or(|| false).await
    }

    /// Waits until data can be sent, or until `enough`.
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
        match (self.watched, self.reactor.ring()) {
            (Watched::Epoll(slot), _) => return self.reactor.watch_writes(&self.fd, slot, watch),
            // The ring reports buffer space by itself, but received data only if a receive is pending.
            (Watched::Ring(line), Some(ring)) if !self.readiness.readable.get() => ring.listen(line),
            _ => {}
        }
        Ok(())
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
