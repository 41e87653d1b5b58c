//! Event loop of one thread: futures, readiness from epoll, deadlines.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event};

use super::pool::Pool;
use super::prefetch::prefetch;
use super::readiness::{Readiness, Sources};
use super::ring::Ring;
use super::timers::{Task, Timers};
use super::{Clock, Error, Nanos};

/// Maximum number of events per epoll call. More would delay the first ones.
const EVENTS_MAX: usize = 256;
/// Bytes of the next future to prefetch while another is polled: most futures completely.
const PREFETCHED_BYTES: usize = 4096;

/// I/O interface of a loop's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Io {
    /// io_uring if the kernel supports and permits it, else epoll.
    #[default]
    Auto,
    /// A system call per message, and epoll to wait.
    Epoll,
    /// One system call for all messages of a turn and the wait. An error if it is not available.
    IoUring,
}

impl Io {
    /// The interface used on this machine, never [`Io::Auto`].
    #[must_use]
    pub fn resolve(self) -> Self {
        match self {
            Self::Auto if Ring::is_available() => Self::IoUring,
            Self::Auto => Self::Epoll,
            chosen => chosen,
        }
    }
}

/// A handle to the loop of a thread. Clones refer to the same loop.
#[derive(Clone)]
pub struct Reactor(Rc<Core>);

struct Core {
    clock: Clock,
    epoll: OwnedFd,
    /// The ring for the sockets that have joined it. It is dropped after all sockets, which refer to the loop.
    ring: Option<Ring>,
    sources: RefCell<Sources>,
    timers: RefCell<Timers>,
    ready: RefCell<VecDeque<Task>>,
    /// Tasks that yield until the next turn.
    paused: RefCell<Vec<Task>>,
    /// By task: whether it is already in `ready`.
    queued: RefCell<Vec<bool>>,
    current: Cell<Task>,
    pool: Pool,
}

/// A future that a loop runs.
pub type Routine<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

impl Reactor {
    /// A loop for the calling thread, with the thread's timer slack set to 1 ns. Sockets use epoll.
    pub fn new(clock: Clock) -> Result<Self, Error> {
        Self::with_io(clock, Io::Epoll)
    }

    /// A loop with a given I/O interface.
    pub fn with_io(clock: Clock, io: Io) -> Result<Self, Error> {
        let slack = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        slack.map_err(|e| Error::system("make the timers exact", e))?;
        let epoll =
            epoll::create(CreateFlags::CLOEXEC).map_err(|e| Error::system("create an epoll instance", e))?;
        let ring = match io.resolve() {
            Io::IoUring => Some(Ring::new(&epoll)?),
            Io::Auto | Io::Epoll => None,
        };
        Ok(Self(Rc::new(Core {
            clock,
            epoll,
            ring,
            sources: RefCell::default(),
            timers: RefCell::default(),
            ready: RefCell::default(),
            paused: RefCell::default(),
            queued: RefCell::default(),
            current: Cell::new(Task(0)),
            pool: Pool::default(),
        })))
    }

    /// The current instant.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.0.clock.now()
    }

    /// The future being polled.
    #[must_use]
    pub fn current(&self) -> Task {
        self.0.current.get()
    }

    /// Schedules `task`. No effect if it has ended.
    pub fn wake(&self, task: Task) {
        if let Some(queued) = self.0.queued.borrow_mut().get_mut(task.0 as usize) {
            if !std::mem::replace(queued, true) {
                self.0.ready.borrow_mut().push_back(task);
            }
        }
    }

    /// Schedules every future, after a change that any of them may wait for.
    pub fn wake_all(&self) {
        let tasks = self.0.queued.borrow().len() as u32;
        (0..tasks).for_each(|task| self.wake(Task(task)));
    }

    /// Waits until the instant `at`.
    pub async fn sleep_until(&self, at: Nanos) {
        let mut is_set = false;
        poll_fn(|_| {
            let now = self.now();
            if now >= at {
                return Poll::Ready(());
            }
            if !std::mem::replace(&mut is_set, true) {
                self.0.timers.borrow_mut().set(at, self.current());
            }
            Poll::Pending
        })
        .await;
    }

    /// Runs `future` until the instant `at`; then drops it and returns `None`.
    pub async fn until<T>(&self, at: Nanos, future: impl Future<Output = T>) -> Option<T> {
        let mut future = std::pin::pin!(future);
        let mut sleep = std::pin::pin!(self.sleep_until(at));
        let mut is_set = false;
        let output = poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => {
                is_set = true;
                sleep.as_mut().poll(context).map(|()| None)
            }
        })
        .await;
        // As long as a deadline is set, each turn reads the clock and sets a timer of the kernel.
        if is_set {
            self.0.timers.borrow_mut().cancel(at, self.current());
        }
        output
    }

    /// Yields to the other ready futures of this loop, to what has happened, and to deadlines.
    pub async fn pause(&self) {
        let mut paused = false;
        poll_fn(|_| {
            if std::mem::replace(&mut paused, true) {
                return Poll::Ready(());
            }
            self.0.paused.borrow_mut().push(self.current());
            Poll::Pending
        })
        .await;
    }

    /// Runs one future to completion and returns its output.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> Result<T, Error> {
        self.run_concurrently(future, Vec::new())
    }

    /// Runs `main` to completion and returns its output. `others` run concurrently and are dropped when it
    /// ends.
    pub fn run_concurrently<T>(
        &self,
        main: impl Future<Output = T>,
        others: Vec<Routine<'_>>,
    ) -> Result<T, Error> {
        let mut output = None;
        let main: Routine<'_> = Box::pin(async { output = Some(main.await) });
        self.poll_while(std::iter::once(main).chain(others).collect(), |ended, _| ended != Task(0))?;
        output.ok_or(Error::Stalled)
    }

    /// Runs futures until all have ended.
    pub fn run(&self, futures: Vec<Routine<'_>>) -> Result<(), Error> {
        self.poll_while(futures, |_, alive| alive > 0)
    }

    /// Polls futures while `go_on` returns true. It is called when a future has ended, with its number and the
    /// number of running futures.
    fn poll_while(
        &self,
        futures: Vec<Routine<'_>>,
        go_on: impl Fn(Task, usize) -> bool,
    ) -> Result<(), Error> {
        let mut alive = futures.len();
        let mut futures: Vec<_> = futures.into_iter().map(Some).collect();
        let tasks = (0..futures.len() as u32).map(Task);
        *self.0.ready.borrow_mut() = tasks.collect();
        *self.0.queued.borrow_mut() = vec![true; futures.len()];
        self.0.timers.borrow_mut().clear();
        self.0.paused.borrow_mut().clear();
        let mut context = Context::from_waker(Waker::noop());
        while alive > 0 {
            while let Some(task) = self.next_ready() {
                let next =
                    self.0.ready.borrow().front().and_then(|next| futures.get(next.0 as usize)?.as_ref());
                if let Some(next) = next {
                    prefetch(&**next, PREFETCHED_BYTES);
                }
                let Some(place) = futures.get_mut(task.0 as usize) else { continue };
                self.0.current.set(task);
                if place.as_mut().is_some_and(|future| future.as_mut().poll(&mut context).is_ready()) {
                    *place = None;
                    alive -= 1;
                    if !go_on(task, alive) {
                        return Ok(());
                    }
                }
            }
            self.turn()?;
        }
        Ok(())
    }

    fn next_ready(&self) -> Option<Task> {
        let task = self.0.ready.borrow_mut().pop_front()?;
        if let Some(queued) = self.0.queued.borrow_mut().get_mut(task.0 as usize) {
            *queued = false;
        }
        Some(task)
    }

    /// Waits for readiness or the earliest deadline, and schedules the futures.
    fn turn(&self) -> Result<(), Error> {
        let earliest = self.0.timers.borrow().earliest();
        let paused = self.0.paused.take();
        match &self.0.clock {
            Clock::Monotonic { .. } if !paused.is_empty() => {
                self.wait(Some(Nanos::ZERO))?;
            }
            Clock::Monotonic { .. } => {
                self.wait(earliest.map(|at| at - self.now()))?;
            }
            Clock::Fake(now) => {
                if self.wait(Some(Nanos::ZERO))? == 0 && paused.is_empty() {
                    now.fetch_max(earliest.ok_or(Error::Stalled)?.0, Relaxed);
                }
            }
        }
        if earliest.is_some() {
            self.wake_due();
        }
        for task in paused {
            self.wake(task);
        }
        Ok(())
    }

    fn wait(&self, at_most: Option<Nanos>) -> Result<usize, Error> {
        let Some(ring) = &self.0.ring else { return self.wait_by_epoll(at_most) };
        let turn = ring.turn(at_most, |task| self.wake(task))?;
        if !turn.epoll_is_ready {
            return Ok(turn.happened);
        }
        // epoll reports new events only once, so take all.
        while self.wait_by_epoll(Some(Nanos::ZERO))? == EVENTS_MAX {}
        Ok(turn.happened)
    }

    fn wait_by_epoll(&self, at_most: Option<Nanos>) -> Result<usize, Error> {
        let timeout = at_most.map(|at_most| Timespec {
            tv_sec: (at_most.0 / 1_000_000_000) as i64,
            tv_nsec: (at_most.0 % 1_000_000_000) as i64,
        });
        let mut events = [const { MaybeUninit::<Event>::uninit() }; EVENTS_MAX];
        let happened = match epoll::wait(&self.0.epoll, &mut events[..], timeout.as_ref()) {
            Ok((happened, _)) => happened,
            Err(rustix::io::Errno::INTR) => return Ok(0),
            Err(errno) => return Err(Error::system("wait for events", errno)),
        };
        let sources = self.0.sources.borrow();
        for event in happened.iter() {
            if let Some(task) = sources.happened(event.data.u64(), event.flags) {
                self.wake(task);
            }
        }
        Ok(happened.len())
    }

    fn wake_due(&self) {
        let now = self.now();
        let mut timers = self.0.timers.borrow_mut();
        while let Some(task) = timers.pop_due(now) {
            self.wake(task);
        }
    }

    #[inline]
    pub(super) fn ring(&self) -> Option<&Ring> {
        self.0.ring.as_ref()
    }

    pub(super) fn leave_ring(&self, line: u32, socket: &OwnedFd) {
        if let Some(ring) = &self.0.ring {
            ring.leave(line, socket, |task| self.wake(task));
        }
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.0.pool
    }

    pub(super) fn register(&self, socket: &OwnedFd) -> Result<(u64, Rc<Readiness>), Error> {
        self.0.sources.borrow_mut().add(&self.0.epoll, socket)
    }

    pub(super) fn watch_writes(&self, socket: &OwnedFd, slot: u64, watch: bool) -> Result<(), Error> {
        Sources::watch_writes(&self.0.epoll, socket, slot, watch)
    }

    pub(super) fn forget(&self, socket: &OwnedFd, slot: u64) {
        // Closing is not enough for an eventfd, which has two descriptors.
        let _ = epoll::delete(&self.0.epoll, socket);
        self.0.sources.borrow_mut().remove(slot);
    }
}
