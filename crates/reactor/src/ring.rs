//! io_uring for the sockets of a loop: one system call per turn sends all messages and waits for completions.
//!
//! A participating socket has a *line*: the buffers that the kernel reads and writes for it. Exceptional cases
//! (a large response, end of stream, an error) use plain system calls.

#![allow(unsafe_code)] // The kernel accesses buffers of the lines, which `Ring` keeps until it has finished.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;

use super::prefetch::prefetch;
use super::readiness::Readiness;
use super::timers::Task;
use super::{Error, Nanos};

/// Size of the receive buffer: the responses of several transactions. More is received by plain system calls.
const RECEIVED_BYTES: usize = 4096;
/// Size of most responses.
const PREFETCHED_BYTES: usize = 128;
/// Maximum size of a send buffer that is kept; a larger one was an exception.
const SENT_BYTES_KEPT: usize = 64 << 10;
/// Size of the submission queue. A full queue is submitted before the next turn.
const REQUESTS_MAX: u32 = 512;
/// Size of the completion queue. The kernel keeps further ones, at a cost.
const COMPLETIONS_MAX: u32 = 8192;
/// Poll before receiving: usually there are no bytes yet.
const POLL_FIRST: u16 = 1;
/// Maximum time of one wait. The kernel adds the present to it, and with the longest times the sum would overflow.
const WAIT_S_MAX: u64 = i32::MAX as u64;
/// Maximum time to wait at the end of the loop for requests in flight.
const LEAVE_WITHIN: Nanos = Nanos(1_000_000_000);

/// Tags of `user_data`: one of these, and the number of the line.
const RECEIVE: u64 = 0;
const SEND: u64 = 1 << 32;
const EPOLL: u64 = 2 << 32;

/// The io_uring of one thread.
pub(super) struct Ring(RefCell<Inner>);

struct Inner {
    uring: IoUring,
    enter_flags: EnterFlags,
    epoll: RawFd,
    lines: Vec<Line>,
    /// Completions of a turn, kept to reuse its memory.
    came: Vec<cqueue::Entry>,
    free: Vec<u32>,
    /// Requests in flight. The line's memory is free after their completion.
    in_flight: u32,
    /// Number of the next turn. The kernel has taken and tried all requests of earlier turns.
    handed_over: u64,
    /// The epoll instance was reported as ready, which happens once, and the loop does not know yet.
    epoll_is_ready: bool,
}

struct Line {
    fd: RawFd,
    /// Readiness of the socket; `None` if it is closed. The line is then free when nothing is in flight.
    readiness: Option<Rc<Readiness>>,
    is_receiving: bool,
    received: Box<[u8; RECEIVED_BYTES]>,
    /// `received[taken..filled]` has not been taken yet.
    taken: usize,
    filled: usize,
    out: Vec<u8>,
    /// The turn in which `out` is tried. Until it ends, the number of bytes sent is unknown.
    tried_in: u64,
    /// `out[sent..]` waits for buffer space in the kernel.
    sent: usize,
    awaits_room: bool,
    failure: Option<Errno>,
}

/// Result of a turn.
pub(super) struct Turn {
    /// Number of completions, including epoll's.
    pub(super) happened: usize,
    /// Whether the epoll instance has events.
    pub(super) epoll_is_ready: bool,
}

fn set_up() -> io::Result<IoUring> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_submit_all()
        .setup_cqsize(COMPLETIONS_MAX)
        .build(REQUESTS_MAX)
}

impl Ring {
    /// Whether the kernel has the required features (Linux 6.1) and permits io_uring, which containers often do
    /// not.
    pub(super) fn is_available() -> bool {
        set_up().is_ok()
    }

    /// A ring that also reports events of `epoll`.
    pub(super) fn new(epoll: &OwnedFd) -> Result<Self, Error> {
        let uring = set_up().map_err(|source| Error::system("set io_uring up", source))?;
        let mut enter_flags = EnterFlags::EXT_ARG | EnterFlags::GETEVENTS;
        if uring.params().is_feature_no_iowait() {
            // Otherwise the kernel counts waiting for the server as I/O wait.
            enter_flags |= EnterFlags::NO_IOWAIT;
        }
        let mut inner = Inner {
            uring,
            enter_flags,
            epoll: epoll.as_raw_fd(),
            lines: Vec::new(),
            came: Vec::new(),
            free: Vec::new(),
            in_flight: 0,
            handed_over: 1,
            epoll_is_ready: false,
        };
        inner.watch_epoll()?;
        Ok(Self(RefCell::new(inner)))
    }

    /// Adds a line for a socket.
    pub(super) fn join(&self, socket: &OwnedFd, readiness: &Rc<Readiness>) -> u32 {
        let mut inner = self.0.borrow_mut();
        let index = inner.free.pop().unwrap_or(inner.lines.len() as u32);
        if index as usize == inner.lines.len() {
            inner.lines.push(Line::new());
        }
        let line = &mut inner.lines[index as usize];
        (line.fd, line.readiness) = (socket.as_raw_fd(), Some(Rc::clone(readiness)));
        (line.taken, line.filled, line.failure) = (0, 0, None);
        index
    }

    /// Removes a line after its pending data is sent. The socket may be closed afterwards.
    pub(super) fn leave(&self, index: u32, socket: &OwnedFd, wake: impl Fn(Task)) {
        let mut inner = self.0.borrow_mut();
        // A request refers to a descriptor, which may be reused: submit all of them first. An error means that
        // the ring accepts nothing at all; the next turn of the loop reports it, too.
        let _ = inner.hand_over(&wake);
        let line = &mut inner.lines[index as usize];
        line.readiness = None;
        if line.is_receiving || line.awaits_room {
            // The kernel keeps the socket open for these requests until they fail.
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
        inner.free_if_left(index);
    }

    /// An empty buffer to send: that of the line, unless the kernel may still read it.
    #[inline]
    pub(super) fn send_buffer(&self, index: u32) -> Vec<u8> {
        let inner = &mut *self.0.borrow_mut();
        let line = &mut inner.lines[index as usize];
        if line.tried_in >= inner.handed_over || line.awaits_room {
            return Vec::new();
        }
        line.out.clear();
        line.out.shrink_to(SENT_BYTES_KEPT);
        std::mem::take(&mut line.out)
    }

    /// Takes `out`, and sends it with the next turn; `None` while earlier bytes wait for buffer space.
    #[inline]
    pub(super) fn send(
        &self,
        index: u32,
        out: &mut Vec<u8>,
        wake: impl Fn(Task),
    ) -> Result<Option<usize>, Error> {
        let mut inner = self.0.borrow_mut();
        if inner.lines[index as usize].tried_in >= inner.handed_over {
            inner.hand_over(&wake)?;
        }
        let handed_over = inner.handed_over;
        let line = &mut inner.lines[index as usize];
        if line.awaits_room {
            return Ok(None);
        }
        line.out = std::mem::take(out);
        (line.sent, line.tried_in) = (0, handed_over);
        let count = line.out.len();
        // Only failures and partial sends are reported.
        let request = line.send(libc::MSG_DONTWAIT).build().flags(squeue::Flags::SKIP_SUCCESS);
        inner.push(&request.user_data(SEND | u64::from(index)))?;
        Ok(Some(count))
    }

    /// Starts a receive, unless one is in progress.
    #[inline]
    pub(super) fn listen(&self, index: u32) {
        let mut inner = self.0.borrow_mut();
        let line = &mut inner.lines[index as usize];
        if line.is_receiving {
            return;
        }
        line.is_receiving = true;
        let request = opcode::Recv::new(Fd(line.fd), line.received.as_mut_ptr(), RECEIVED_BYTES as u32);
        inner.in_flight += 1;
        // An error means that the ring accepts nothing at all; the next turn of the loop reports it, too.
        let _ = inner.push(&request.ioprio(POLL_FIRST).build().user_data(RECEIVE | u64::from(index)));
    }

    /// Takes received bytes, and returns whether the kernel may have more. `None` without any.
    #[inline]
    pub(super) fn take(&self, index: u32, space: &mut [u8]) -> Result<Option<(usize, bool)>, Error> {
        let line = &mut self.0.borrow_mut().lines[index as usize];
        if let Some(errno) = line.failure {
            return Err(Error::system("send to the server", errno));
        }
        if line.taken == line.filled {
            return Ok(None);
        }
        let count = space.len().min(line.filled - line.taken);
        space[..count].copy_from_slice(&line.received[line.taken..line.taken + count]);
        line.taken += count;
        Ok(Some((count, line.taken < line.filled || line.filled == RECEIVED_BYTES)))
    }

    /// Submits the requests and waits for completions, at most `at_most` (without a limit if `None`).
    #[inline]
    pub(super) fn turn(&self, at_most: Option<Nanos>, wake: impl Fn(Task)) -> Result<Turn, Error> {
        let mut inner = self.0.borrow_mut();
        // A turn between two of the loop's may have been reported already. Then do not wait.
        let at_most = if inner.epoll_is_ready { Some(Nanos::ZERO) } else { at_most };
        let completions = u32::from(at_most != Some(Nanos::ZERO));
        let happened = inner.turn(completions, at_most, &wake)?;
        let epoll_is_ready = std::mem::take(&mut inner.epoll_is_ready);
        Ok(Turn { happened: happened + usize::from(epoll_is_ready), epoll_is_ready })
    }
}

impl Inner {
    fn push(&mut self, request: &squeue::Entry) -> Result<(), Error> {
        // SAFETY: the memory belongs to a line, which neither moves nor frees it, nor allows writes to it,
        // until the request is completed or, if it never waits, submitted.
        while unsafe { self.uring.submission().push(request) }.is_err() {
            self.enter(0, None)?;
        }
        Ok(())
    }

    fn watch_epoll(&mut self) -> Result<(), Error> {
        let poll = opcode::PollAdd::new(Fd(self.epoll), libc::POLLIN as u32).multi(true);
        self.push(&poll.build().user_data(EPOLL))
    }

    fn enter(&mut self, completions: u32, at_most: Option<Nanos>) -> Result<(), Error> {
        let queued = self.uring.submission().len() as u32;
        let timeout = at_most.map(|at_most| {
            let seconds = (at_most.0 / 1_000_000_000).min(WAIT_S_MAX);
            Timespec::new().sec(seconds).nsec((at_most.0 % 1_000_000_000) as u32)
        });
        let mut arguments = SubmitArgs::new();
        if let Some(timeout) = &timeout {
            arguments = arguments.timespec(timeout);
        }
        let flags = self.enter_flags.bits();
        // SAFETY: the arguments match EXT_ARG and live until the call returns.
        let entered = unsafe { self.uring.submitter().enter(queued, completions, flags, Some(&arguments)) };
        match entered.map_err(|error| (Errno::from_io_error(&error), error)) {
            // Timeout, signal, or a full completion queue.
            Ok(_) | Err((Some(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN), _)) => Ok(()),
            Err((_, source)) => Err(Error::system("wait for events", source)),
        }
    }

    #[inline]
    fn turn(
        &mut self,
        completions: u32,
        at_most: Option<Nanos>,
        wake: &impl Fn(Task),
    ) -> Result<usize, Error> {
        self.enter(completions, at_most)?;
        let all_handed_over = self.uring.submission().is_empty();
        let mut came = std::mem::take(&mut self.came);
        came.extend(self.uring.completion());
        let lines =
            || came.iter().filter_map(|completion| self.lines.get(completion.user_data() as u32 as usize));
        lines().for_each(|line| prefetch(line, size_of::<Line>()));
        lines().for_each(Line::prefetch_more);
        let happened = came.len();
        for completion in came.drain(..) {
            let index = completion.user_data() as u32;
            match completion.user_data() - u64::from(index) {
                RECEIVE => self.received(index, completion.result(), wake),
                SEND => self.sent(index, completion.result(), wake)?,
                _ => {
                    self.epoll_is_ready = true;
                    if !cqueue::more(completion.flags()) {
                        self.watch_epoll()?;
                    }
                }
            }
        }
        self.came = came;
        self.handed_over += u64::from(all_handed_over);
        Ok(happened)
    }

    /// Turns without waiting until the kernel has taken all requests.
    #[cold]
    fn hand_over(&mut self, wake: &impl Fn(Task)) -> Result<(), Error> {
        loop {
            self.turn(0, None, wake)?;
            if self.uring.submission().is_empty() {
                return Ok(());
            }
        }
    }

    #[inline]
    fn received(&mut self, index: u32, result: i32, wake: &impl Fn(Task)) {
        self.in_flight -= 1;
        let line = &mut self.lines[index as usize];
        line.is_receiving = false;
        let Some(readiness) = &line.readiness else { return self.free_if_left(index) };
        (line.taken, line.filled) = (0, result.max(0) as usize);
        // End of stream or an error: a plain system call finds it again.
        readiness.receivable(result <= 0).map(wake);
    }

    /// Handles a partial or failed send.
    #[cold]
    fn sent(&mut self, index: u32, result: i32, wake: &impl Fn(Task)) -> Result<(), Error> {
        let line = &mut self.lines[index as usize];
        self.in_flight -= u32::from(std::mem::take(&mut line.awaits_room));
        line.sent += result.max(0) as usize;
        let errno = (result < 0).then(|| Errno::from_raw_os_error(-result));
        let goes_on = matches!(errno, None | Some(Errno::AGAIN | Errno::INTR));
        if goes_on && line.sent < line.out.len() {
            line.awaits_room = true;
            self.in_flight += 1;
            let request = line.send(0).build().user_data(SEND | u64::from(index));
            return self.push(&request);
        }
        let Some(readiness) = &line.readiness else {
            self.free_if_left(index);
            return Ok(());
        };
        // The receiver finds a closed connection, after the server's last message.
        if !matches!(errno, None | Some(Errno::PIPE | Errno::CONNRESET)) {
            line.failure = errno;
            readiness.receivable(true).map(wake);
        }
        readiness.sendable().map(wake);
        Ok(())
    }

    fn free_if_left(&mut self, index: u32) {
        let line = &self.lines[index as usize];
        if line.readiness.is_none() && !line.is_receiving && !line.awaits_room {
            self.free.push(index);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // All sockets are removed: requests in flight fail soon.
        while self.in_flight > 0 {
            let before = self.in_flight;
            let turned = self.turn(1, Some(LEAVE_WITHIN), &|_| ());
            if turned.is_err() || self.in_flight == before {
                // The kernel may still write: leak the memory.
                return std::mem::forget(std::mem::take(&mut self.lines));
            }
        }
    }
}

impl Line {
    fn new() -> Self {
        Self {
            fd: -1,
            readiness: None,
            is_receiving: false,
            received: Box::new([0; RECEIVED_BYTES]),
            taken: 0,
            filled: 0,
            out: Vec::new(),
            tried_in: 0,
            sent: 0,
            awaits_room: false,
            failure: None,
        }
    }

    /// Prefetches referenced memory: the waiting task, and the start of the received bytes.
    #[inline]
    fn prefetch_more(&self) {
        prefetch(&*self.received, PREFETCHED_BYTES);
        if let Some(readiness) = &self.readiness {
            prefetch(&**readiness, size_of::<Readiness>());
        }
    }

    fn send(&self, flags: i32) -> opcode::Send {
        let rest = &self.out[self.sent..];
        opcode::Send::new(Fd(self.fd), rest.as_ptr(), rest.len() as u32)
            .flags(flags | libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
    }
}
