//! A disk: a cache with power, faults and counters.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::cache::{Cache, Cut, Survivors};
use crate::store::Store;

/// A request that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// A write.
    Write,
    /// A flush.
    Flush,
}

/// Requests that the disk has completed, and those that it refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Read requests.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes, including those of a lying disk.
    pub flushes: u64,
    /// Requests that failed on purpose.
    pub failed: u64,
    /// Requests after the cut.
    pub refused: u64,
}

/// How a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The power is off.
    #[error("the power is off")]
    Off,
    /// The fault was ordered.
    #[error("injected fault")]
    Injected,
    /// The request is outside of the disk.
    #[error("request outside of the disk")]
    Outside,
    /// The image cannot be read or written.
    #[error("cannot use the image: {0}")]
    Image(#[from] io::Error),
}

/// A disk that serves one request at a time.
pub struct Disk<S> {
    size_bytes: u64,
    lies: bool,
    state: Mutex<State<S>>,
    /// Signaled when a planned cut has happened.
    has_cut: Condvar,
}

/// The moment of a planned cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Moment {
    /// The write that makes this many pieces volatile.
    Volatile(u64),
    /// The next flush, before it does anything: a commit waits for it.
    Flush,
}

/// A cut at a moment.
struct Planned {
    moment: Moment,
    survivors: Survivors,
    seed: u64,
}

/// A cut: its instant on the monotonic clock, what became of the volatile pieces, and whether it was at its moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Happened {
    /// Nanoseconds on the monotonic clock.
    pub at_ns: u64,
    /// What became of the volatile pieces.
    pub cut: Cut,
    /// Whether the planned moment came. False for a cut without one.
    pub is_planned: bool,
}

struct State<S> {
    cache: Cache<S>,
    is_on: bool,
    failing: Option<(Operation, u64)>,
    planned: Option<Planned>,
    happened: Option<Result<Happened, Fault>>,
    counts: Counts,
    image_error: Option<String>,
}

impl<S: Store> Disk<S> {
    /// A disk with power. `lies`: it acknowledges flushes and does nothing.
    pub fn new(cache: Cache<S>, size_bytes: u64, lies: bool) -> Self {
        let state = State {
            cache,
            is_on: true,
            failing: None,
            planned: None,
            happened: None,
            counts: Counts::default(),
            image_error: None,
        };
        Self { size_bytes, lies, state: Mutex::new(state), has_cut: Condvar::new() }
    }

    /// Its size.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// A thread that panicked leaves sound state: each request changes it in one step that can fail.
    fn state(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads at most `length` bytes, up to the end of the disk.
    pub fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>, Fault> {
        let mut state = self.state();
        state.require_power()?;
        let offset = offset.min(self.size_bytes);
        let length = length.min(usize::try_from(self.size_bytes - offset).unwrap_or(usize::MAX));
        let mut data = vec![0; length];
        let done = state.cache.read(offset, &mut data);
        state.noting(done)?;
        state.counts.reads += 1;
        state.counts.read_bytes += length as u64;
        Ok(data)
    }

    /// Writes into the cache.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        let mut state = self.state();
        state.require_power()?;
        state.fail_if_due(Operation::Write)?;
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > self.size_bytes) {
            return Err(Fault::Outside);
        }
        let done = state.cache.write(offset, data);
        state.noting(done)?;
        state.counts.writes += 1;
        state.counts.written_bytes += data.len() as u64;
        let volatile = state.cache.volatile();
        self.cut_if_due(&mut state, |moment| matches!(moment, Moment::Volatile(pieces) if volatile >= pieces))
    }

    /// Carries out the planned cut if this is its moment: the request is then not answered.
    fn cut_if_due(&self, state: &mut State<S>, is_due: impl Fn(Moment) -> bool) -> Result<(), Fault> {
        let Some(planned) = state.planned.take_if(|planned| is_due(planned.moment)) else { return Ok(()) };
        let happened = state.cut(planned.survivors, planned.seed);
        state.happened = Some(happened.map(|happened| Happened { is_planned: true, ..happened }));
        self.has_cut.notify_all();
        Err(Fault::Off)
    }

    /// Makes all writes durable, or only says so.
    pub fn flush(&self) -> Result<(), Fault> {
        let mut state = self.state();
        state.require_power()?;
        self.cut_if_due(&mut state, |moment| moment == Moment::Flush)?;
        state.fail_if_due(Operation::Flush)?;
        if !self.lies {
            let done = state.cache.flush();
            state.noting(done)?;
        }
        state.counts.flushes += 1;
        Ok(())
    }

    /// Cuts the power. Returns the instant on the monotonic clock: every request that was answered was answered before it. `None` if the
    /// power is off already.
    pub fn cut(&self, survivors: Survivors, seed: u64) -> Result<Option<Happened>, Fault> {
        let mut state = self.state();
        if state.is_on { state.cut(survivors, seed).map(Some) } else { Ok(None) }
    }

    /// Cuts the power at a moment, at the latest after a time.
    pub fn cut_when(
        &self,
        moment: Moment,
        within: Duration,
        survivors: Survivors,
        seed: u64,
    ) -> Result<Option<Happened>, Fault> {
        let mut state = self.state();
        if !state.is_on {
            return Ok(None);
        }
        state.planned = Some(Planned { moment, survivors, seed });
        let waited = self.has_cut.wait_timeout_while(state, within, |state| state.planned.is_some());
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.planned = None;
        match state.happened.take() {
            Some(happened) => happened.map(Some),
            None => state.cut(survivors, seed).map(Some),
        }
    }

    /// Switches the power on again.
    #[cfg(test)]
    fn revive(&self) {
        self.state().is_on = true;
    }

    /// Orders the failure of the n-th request of this kind from now on, from 1. Later requests succeed.
    pub fn fail(&self, operation: Operation, nth: u64) {
        self.state().failing = Some((operation, nth.max(1)));
    }

    /// Makes everything durable at an orderly end. A disk without power has nothing that is volatile.
    pub fn settle(&self) -> Result<(), Fault> {
        let mut state = self.state();
        let done = state.cache.flush();
        state.noting(done)
    }

    /// Counters, and pieces that are volatile now.
    pub fn counts(&self) -> (Counts, u64) {
        let state = self.state();
        (state.counts, state.cache.volatile())
    }

    /// The first error of the image file, such as a full disk below it: the test is void.
    pub fn image_error(&self) -> Option<String> {
        self.state().image_error.clone()
    }
}

impl<S: Store> State<S> {
    fn cut(&mut self, survivors: Survivors, seed: u64) -> Result<Happened, Fault> {
        self.is_on = false;
        let at_ns = monotonic_ns();
        let done = self.cache.cut(survivors, seed);
        Ok(Happened { at_ns, cut: self.noting(done)?, is_planned: false })
    }

    fn require_power(&mut self) -> Result<(), Fault> {
        if self.is_on {
            return Ok(());
        }
        self.counts.refused += 1;
        Err(Fault::Off)
    }

    fn fail_if_due(&mut self, operation: Operation) -> Result<(), Fault> {
        let Some((_, left)) = self.failing.as_mut().filter(|(failing, _)| *failing == operation) else {
            return Ok(());
        };
        *left -= 1;
        if *left > 0 {
            return Ok(());
        }
        self.failing = None;
        self.counts.failed += 1;
        Err(Fault::Injected)
    }

    fn noting<T>(&mut self, done: io::Result<T>) -> Result<T, Fault> {
        done.map_err(|error| {
            self.image_error.get_or_insert_with(|| error.to_string());
            Fault::Image(error)
        })
    }
}

/// Now, on the clock that all processes of the machine share.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{PIECE_BYTES, SECTOR_BYTES};

    const SIZE: usize = 4 * PIECE_BYTES;

    fn disk(lies: bool) -> Disk<Vec<u8>> {
        Disk::new(Cache::new(vec![0; SIZE], 4), SIZE as u64, lies)
    }

    fn first_byte_after_a_cut(disk: &Disk<Vec<u8>>) -> u8 {
        disk.cut(Survivors::Nothing, 1).expect("in memory").expect("it had power");
        disk.revive();
        disk.read(0, 1).expect("it has power")[0]
    }

    #[test]
    fn a_flush_saves_a_write_from_the_cut_unless_the_disk_lies() {
        for (lies, left) in [(false, 7), (true, 0)] {
            let disk = disk(lies);
            disk.write(0, &[7; SECTOR_BYTES]).expect("sound");
            disk.flush().expect("sound");
            assert_eq!(first_byte_after_a_cut(&disk), left, "lies: {lies}");
        }
    }

    #[test]
    fn without_power_every_request_is_refused() {
        let disk = disk(false);
        disk.cut(Survivors::All, 1).expect("in memory");
        assert!(matches!(disk.read(0, 1), Err(Fault::Off)));
        assert!(matches!(disk.write(0, &[1]), Err(Fault::Off)));
        assert!(matches!(disk.flush(), Err(Fault::Off)));
        assert!(disk.cut(Survivors::All, 1).expect("in memory").is_none());
        assert_eq!(disk.counts().0.refused, 3);
    }

    #[test]
    fn a_planned_cut_happens_in_the_write_that_fills_the_cache() {
        let disk = disk(false);
        let minute = Duration::from_secs(60);
        let happened = std::thread::scope(|scope| {
            let cut = scope.spawn(|| disk.cut_when(Moment::Volatile(3), minute, Survivors::Nothing, 1));
            while disk.state().planned.is_none() {
                std::thread::yield_now();
            }
            let writes: Vec<bool> = (0..4u64)
                .map(|piece| disk.write(piece * PIECE_BYTES as u64, &[1; SECTOR_BYTES]).is_ok())
                .collect();
            assert_eq!(writes, [true, true, false, false]);
            cut.join().expect("no panic")
        });
        let happened = happened.expect("in memory").expect("it had power");
        assert_eq!((happened.cut.volatile, happened.cut.survived, happened.is_planned), (3, 0, true));
    }

    #[test]
    fn a_planned_cut_happens_at_the_latest_after_its_time() {
        let disk = disk(false);
        disk.write(0, &[1; SECTOR_BYTES]).expect("sound");
        let cut = |moment| disk.cut_when(moment, Duration::ZERO, Survivors::All, 1).expect("in memory");
        let happened = cut(Moment::Volatile(3)).expect("it had power");
        assert_eq!((happened.cut.volatile, happened.cut.survived, happened.is_planned), (1, 1, false));
        assert!(cut(Moment::Volatile(1)).is_none());
    }

    #[test]
    fn a_cut_at_a_flush_happens_before_the_flush() {
        let disk = disk(false);
        disk.write(0, &[7; SECTOR_BYTES]).expect("sound");
        let happened = std::thread::scope(|scope| {
            let cut =
                scope.spawn(|| disk.cut_when(Moment::Flush, Duration::from_secs(60), Survivors::Nothing, 1));
            while disk.state().planned.is_none() {
                std::thread::yield_now();
            }
            assert!(matches!(disk.flush(), Err(Fault::Off)));
            cut.join().expect("no panic")
        });
        assert!(happened.expect("in memory").expect("it had power").is_planned);
        disk.revive();
        assert_eq!(disk.read(0, 1).expect("it has power")[0], 0);
    }

    #[test]
    fn the_nth_write_or_flush_fails_and_the_disk_is_healthy_again() {
        let disk = disk(false);
        disk.fail(Operation::Write, 2);
        let writes: Vec<bool> = (0..4).map(|_| disk.write(0, &[1; SECTOR_BYTES]).is_ok()).collect();
        assert_eq!(writes, [true, false, true, true]);
        disk.fail(Operation::Flush, 1);
        assert!(matches!(disk.flush(), Err(Fault::Injected)));
        disk.flush().expect("healthy again");
        assert_eq!(disk.counts().0.failed, 2);
    }

    #[test]
    fn a_failed_write_leaves_the_contents_as_they_were() {
        let disk = disk(false);
        disk.write(0, &[1; SECTOR_BYTES]).expect("sound");
        disk.fail(Operation::Write, 1);
        disk.write(0, &[2; SECTOR_BYTES]).expect_err("ordered");
        assert_eq!(disk.read(0, 1).expect("sound"), [1]);
    }

    #[test]
    fn requests_beyond_the_end_are_refused_and_reads_end_there() {
        let disk = disk(false);
        assert!(matches!(disk.write(SIZE as u64 - 1, &[1, 2]), Err(Fault::Outside)));
        assert!(matches!(disk.write(u64::MAX, &[1]), Err(Fault::Outside)));
        assert_eq!(disk.read(SIZE as u64 - 1, 10).expect("sound").len(), 1);
        assert!(disk.read(SIZE as u64 + 5, 10).expect("sound").is_empty());
    }

    #[test]
    fn counters_hold_requests_and_bytes() {
        let disk = disk(false);
        disk.write(0, &[1; PIECE_BYTES]).expect("sound");
        disk.write(0, &[1; SECTOR_BYTES]).expect("sound");
        assert_eq!(disk.counts().1, 1);
        disk.flush().expect("sound");
        disk.read(0, 100).expect("sound");
        let expected = Counts {
            reads: 1,
            read_bytes: 100,
            writes: 2,
            written_bytes: 4608,
            flushes: 1,
            ..Counts::default()
        };
        assert_eq!(disk.counts(), (expected, 0));
    }

    /// A store that is full.
    struct Full;

    impl Store for Full {
        fn read(&self, _: u64, out: &mut [u8]) -> io::Result<()> {
            out.fill(0);
            Ok(())
        }

        fn write_parts(&mut self, _: u64, _: &mut [io::IoSlice<'_>]) -> io::Result<()> {
            Err(io::Error::from(io::ErrorKind::StorageFull))
        }
    }

    #[test]
    fn an_error_of_the_image_fails_the_flush_and_is_kept() {
        let disk = Disk::new(Cache::new(Full, 4), SIZE as u64, false);
        disk.write(0, &[1; SECTOR_BYTES]).expect("volatile");
        assert!(matches!(disk.flush(), Err(Fault::Image(_))));
        assert!(disk.image_error().is_some());
        assert_eq!(disk.counts().1, 1);
    }
}
