//! When a client may send its next operation.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use reactor::Nanos;

/// Most statements that the inserts of a table may be ahead of its deletes, and reverse.
const AHEAD_MAX: u64 = 8;
/// How long a client that is ahead waits before it looks again. The other one has several statements left in this time,
/// so that waiting does not slow it.
const LOOK_EVERY: Nanos = Nanos(200_000);

/// What the clients of a table share. They may be in different threads.
#[derive(Debug, Default)]
pub struct Queue {
    /// Completed statements that insert.
    pub inserts: AtomicU64,
    /// Completed statements that delete.
    pub deletes: AtomicU64,
    /// No row has a lower key.
    pub lowest: AtomicI64,
    /// A key that exists, or existed.
    pub largest: AtomicI64,
}

impl Queue {
    /// Whether inserts are too far ahead of deletes, or with `of_deletes` these of inserts.
    fn is_ahead(&self, of_deletes: bool) -> bool {
        let (inserts, deletes) = (self.inserts.load(Relaxed), self.deletes.load(Relaxed));
        let (own, other) = if of_deletes { (deletes, inserts) } else { (inserts, deletes) };
        own >= other + AHEAD_MAX
    }
}

/// The times of the statements of a client that inserts or deletes.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Whether it waits for the other client of its queue.
    pub is_coupled: bool,
    /// Whether it is the one that deletes.
    pub deletes: bool,
    /// Interval at a constant rate; as fast as possible without it.
    pub interval: Option<Nanos>,
    /// The slice of the last question.
    slice: (Nanos, Nanos),
    next: Option<Nanos>,
}

impl Pace {
    /// Nothing is sent yet.
    pub fn new(interval: Option<Nanos>, is_coupled: bool, deletes: bool) -> Self {
        Self { is_coupled, deletes, interval, slice: (Nanos::ZERO, Nanos::ZERO), next: None }
    }

    /// Goes on to the next statement.
    #[inline]
    pub fn advance(&mut self) {
        self.next = self.next.map(|next| next + self.interval.unwrap_or(Nanos::ZERO));
    }

    /// See [`driver::User::due`]. The clock of the rate is suspended between slices.
    #[inline]
    pub fn due(&mut self, queue: &Queue, slice: (Nanos, Nanos), now: Nanos) -> Nanos {
        let scheduled = self.interval.map_or(now, |_| self.scheduled(slice));
        if scheduled <= now && self.is_coupled && queue.is_ahead(self.deletes) {
            return now + LOOK_EVERY;
        }
        scheduled
    }

    fn scheduled(&mut self, slice: (Nanos, Nanos)) -> Nanos {
        let (opened, (_, closed)) = (slice.0, self.slice);
        let next = match self.next {
            None => opened,
            Some(next) if slice == self.slice => next,
            // The slice ended early.
            Some(_) if closed > opened => opened,
            // What was late in the last slice is as late in this one.
            Some(next) => opened + next - closed,
        };
        self.slice = slice;
        self.next = Some(next);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_clock_of_a_rate_is_suspended_between_slices_and_lateness_remains() {
        let queue = Queue::default();
        let mut pace = Pace::new(Some(Nanos(40 * MS)), false, false);
        let due = |pace: &mut Pace, opened: u64, closes: u64| {
            pace.due(&queue, (Nanos(opened * MS), Nanos(closes * MS)), Nanos(opened * MS)).0 / MS
        };
        assert_eq!(due(&mut pace, 1000, 1100), 1000);
        for expected in [1040, 1080, 1120] {
            pace.advance();
            assert_eq!(due(&mut pace, 1000, 1100), expected);
        }
        // 20 ms were left at the close.
        assert_eq!(due(&mut pace, 2000, 2100), 2020);
        pace.advance();
        assert_eq!(due(&mut pace, 2000, 2100), 2060);
        // It was 40 ms late at the close.
        assert_eq!(due(&mut pace, 3000, 9000), 2960);
        // The last slice was to close later.
        assert_eq!(due(&mut pace, 4000, 9000), 4000);
    }

    #[test]
    fn neither_inserts_nor_deletes_get_far_ahead() {
        let queue = Queue::default();
        let mut inserts = Pace::new(None, true, false);
        let mut deletes = Pace::new(None, true, true);
        let (slice, now) = ((Nanos::ZERO, Nanos::MAX), Nanos(MS));
        queue.deletes.store(7, Relaxed);
        assert_eq!(deletes.due(&queue, slice, now), now);
        queue.deletes.store(8, Relaxed);
        assert_eq!(deletes.due(&queue, slice, now), now + LOOK_EVERY);
        assert_eq!(inserts.due(&queue, slice, now), now);
        queue.inserts.store(16, Relaxed);
        assert_eq!(inserts.due(&queue, slice, now), now + LOOK_EVERY);
        inserts.is_coupled = false;
        assert_eq!(inserts.due(&queue, slice, now), now);
    }
}
