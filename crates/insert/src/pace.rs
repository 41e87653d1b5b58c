//! When a client may send its next operation.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use reactor::Nanos;

/// Most statements that the inserts of a table may be ahead of its deletes, and reverse.
const AHEAD_MAX: u64 = 8;
/// How long a client that is ahead waits before it looks again. The other one has several statements left in this time,
/// so that waiting does not slow it.
const LOOK_EVERY: Nanos = Nanos(200_000);

/// Step of the place of a statement within its interval, in intervals: the golden ratio. Such places are spread evenly
/// whatever the length of a slice. At a fixed place, each statement of short slices could be in their discarded part.
const STEP: f64 = 0.618_033_988_749_895;

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
    /// Place of the next statement within its interval, 0 to 1.
    place: f64,
    /// The slice of the last question.
    slice: (Nanos, Nanos),
    next: Option<Nanos>,
}

impl Pace {
    /// Nothing is sent yet. `place` is that of the first statement within its interval.
    pub fn new(interval: Option<Nanos>, place: f64, is_coupled: bool, deletes: bool) -> Self {
        Self { is_coupled, deletes, interval, place, slice: (Nanos::ZERO, Nanos::ZERO), next: None }
    }

    /// Goes on to the next statement.
    #[inline]
    pub fn advance(&mut self) {
        let (Some(interval), Some(next)) = (self.interval, self.next) else { return };
        let place = (self.place + STEP) % 1.0;
        let intervals = 1.0 + place - self.place;
        self.next = Some(next + Nanos((interval.0 as f64 * intervals) as u64));
        self.place = place;
    }

    /// See [`driver::User::due`]. The clock of the rate is suspended between slices.
    #[inline]
    pub fn due(&mut self, queue: &Queue, slice: (Nanos, Nanos), now: Nanos) -> Nanos {
        let scheduled = self.interval.map_or(now, |interval| self.scheduled(interval, slice, now));
        if scheduled <= now && self.is_coupled && queue.is_ahead(self.deletes) {
            return now + LOOK_EVERY;
        }
        scheduled
    }

    /// At most so many statements are late: the others are lost, as in the benchmark, whose queue is as long.
    fn scheduled(&mut self, interval: Nanos, slice: (Nanos, Nanos), now: Nanos) -> Nanos {
        let (opened, (_, closed)) = (slice.0, self.slice);
        let next = match self.next {
            None => opened + Nanos((interval.0 as f64 * self.place) as u64),
            Some(next) if slice == self.slice => next,
            // The slice ended early.
            Some(_) if closed > opened => opened,
            // What was late in the last slice is as late in this one.
            Some(next) => opened + next - closed,
        };
        let next = next.max(now - Nanos(interval.0.saturating_mul(AHEAD_MAX)));
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
        let mut pace = Pace::new(Some(Nanos(40 * MS)), 0.0, false, false);
        let due = |pace: &mut Pace, opened: u64, closes: u64| {
            pace.due(&queue, (Nanos(opened * MS), Nanos(closes * MS)), Nanos(opened * MS)).0 / MS
        };
        assert_eq!(due(&mut pace, 1000, 1100), 1000);
        // Places 0.62, 0.24 and 0.85 of the next intervals.
        for expected in [1064, 1089, 1154] {
            pace.advance();
            assert_eq!(due(&mut pace, 1000, 1100), expected);
        }
        // 54 ms were left at the close.
        assert_eq!(due(&mut pace, 2000, 2100), 2054);
        pace.advance();
        assert_eq!(due(&mut pace, 2000, 2100), 2078);
        // It was 22 ms late at the close.
        assert_eq!(due(&mut pace, 3000, 9000), 2978);
        // The last slice was to close later.
        assert_eq!(due(&mut pace, 4000, 9000), 4000);
    }

    #[test]
    fn statements_that_are_late_by_more_than_the_queue_are_lost() {
        let queue = Queue::default();
        let mut pace = Pace::new(Some(Nanos(40 * MS)), 0.0, false, false);
        let slice = (Nanos(1000 * MS), Nanos(9000 * MS));
        assert_eq!(pace.due(&queue, slice, slice.0), slice.0);
        let stalled = Nanos(5000 * MS);
        let made_up = std::iter::from_fn(|| {
            pace.advance();
            (pace.due(&queue, slice, stalled) <= stalled).then_some(())
        });
        assert!((8..=9).contains(&made_up.count()));
    }

    #[test]
    fn slices_as_long_as_the_interval_count_their_share_of_the_statements() {
        let (queue, length) = (Queue::default(), 500 * MS);
        let mut counted = Vec::new();
        for first in 0..20 {
            let mut pace = Pace::new(Some(Nanos(length)), f64::from(first) / 20.0, false, false);
            counted.push(0_u32);
            for number in 0..16 {
                let opened = Nanos(2 * number * length);
                let slice = (opened, opened + Nanos(length));
                loop {
                    let due = pace.due(&queue, slice, opened);
                    if due >= slice.1 {
                        break;
                    }
                    // The first tenth is discarded.
                    counted[first as usize] += u32::from(due >= opened + Nanos(length / 10));
                    pace.advance();
                }
            }
        }
        // 16 slices count 14.4 on average.
        assert!(counted.iter().all(|n| (13..=16).contains(n)), "{counted:?}");
        assert!((280..=296).contains(&counted.iter().sum::<u32>()), "{counted:?}");
    }

    #[test]
    fn neither_inserts_nor_deletes_get_far_ahead() {
        let queue = Queue::default();
        let mut inserts = Pace::new(None, 0.0, true, false);
        let mut deletes = Pace::new(None, 0.0, true, true);
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
