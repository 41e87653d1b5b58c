//! When slices are open, and when arrivals of an open loop are due.
//!
//! The time of an arrival comes from the schedule alone, never from the clock after a wait, so that any delay
//! of server or driver is included in the latency (no coordinated omission).

use std::collections::VecDeque;

use super::random::Stream;
use super::spec::Arrivals;
use reactor::Nanos;

/// One slice for its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Index of the slice.
    pub serial: u32,
    /// Index of its target.
    pub target: usize,
    /// Whether it is measured.
    pub is_measured: bool,
    /// Whether it is the target's last slice, so that the backlog cannot wait for a later one.
    pub is_last: bool,
    /// When it opens.
    pub opened: Nanos,
    /// Start of the counted part.
    pub counted_from: Nanos,
    /// When it closes. No transaction is sent later.
    pub closes: Nanos,
    /// Maximum number of transactions per client; the maximum value if only time limits it.
    pub share: u64,
}

impl Window {
    /// Whether a transaction with this intended time, before the close, is timed.
    #[inline]
    pub fn times(&self, intended: Nanos) -> bool {
        self.is_measured && intended >= self.counted_from
    }

    /// Durations of the slice and of its counted part, which is zero if it is not measured.
    pub fn durations(&self) -> (Nanos, Nanos) {
        let counted = if self.is_measured { self.closes - self.counted_from } else { Nanos::ZERO };
        (self.closes - self.opened, counted)
    }
}

/// Arrivals for one thread's clients of a target, over all its slices. The schedule's clock is paused between
/// slices.
///
/// Clients take arrivals in order. Arrivals that nobody has taken are the backlog, which continues in the next
/// slice. The backlog takes no memory.
pub struct Schedule {
    arrivals: Arrivals,
    /// Mean interval in ns, a float so that rounding errors do not accumulate.
    distance_ns: f64,
    /// Instant at which the schedule's clock was 0, without pauses. It moves with each slice.
    origin: Nanos,
    /// When the clock was paused.
    paused: Nanos,
    /// The next arrival by the schedule's clock, in ns.
    next_ns: f64,
    /// Arrivals that clients returned, the first one last.
    returned: Vec<Nanos>,
    stream: Stream,
    /// The slices of the next and later arrivals.
    slices: VecDeque<Due>,
}

/// A slice by the schedule's clock.
struct Due {
    from: Nanos,
    counted_from: Nanos,
    is_measured: bool,
}

/// An arrival.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Due time by the schedule's clock.
    due: Nanos,
    /// Intended send time: before the slice was opened if the arrival waited during a pause.
    pub intended: Nanos,
    /// Whether it became due in the counted part of a measured slice.
    pub is_timed: bool,
}

impl Schedule {
    /// Arrivals at a mean rate of `per_s`.
    ///
    /// `phase` (0 to 1) places constant arrivals of this thread between those of other threads. The clock
    /// starts with [`Self::resume`].
    pub fn new(arrivals: Arrivals, per_s: f64, phase: f64, seed: u64) -> Self {
        let (distance_ns, mut stream) = (1e9 / per_s, Stream::new(seed));
        let first = match arrivals {
            Arrivals::Constant => phase,
            Arrivals::Poisson => stream.exponential(),
        };
        Self {
            arrivals,
            distance_ns,
            origin: Nanos::ZERO,
            paused: Nanos::ZERO,
            next_ns: first * distance_ns,
            returned: Vec::new(),
            stream,
            slices: VecDeque::new(),
        }
    }

    /// Resumes the clock in a slice.
    pub fn resume(&mut self, window: &Window) {
        self.origin = self.origin + (window.opened - self.paused);
        self.slices.push_back(Due {
            from: window.opened - self.origin,
            counted_from: window.counted_from - self.origin,
            is_measured: window.is_measured,
        });
    }

    /// Pauses the clock, which has run until `at`.
    pub fn pause(&mut self, at: Nanos) {
        self.paused = at;
    }

    /// Takes the next arrival, if it is before `end`.
    pub fn take_before(&mut self, end: Nanos) -> Option<Arrival> {
        let due = self.returned.last().copied().unwrap_or(Nanos(self.next_ns as u64));
        let intended = self.origin + due;
        if intended >= end {
            return None;
        }
        if self.returned.pop().is_none() {
            self.next_ns += self.distance_ns
                * match self.arrivals {
                    Arrivals::Constant => 1.0,
                    Arrivals::Poisson => self.stream.exponential(),
                };
        }
        while self.slices.get(1).is_some_and(|slice| slice.from <= due) {
            self.slices.pop_front();
        }
        let is_timed =
            self.slices.front().is_some_and(|slice| slice.is_measured && due >= slice.counted_from);
        Some(Arrival { due, intended, is_timed })
    }

    /// Returns an arrival that cannot be sent in this slice. It is the first one of the next.
    pub fn give_back(&mut self, arrival: Arrival) {
        let place = self.returned.partition_point(|&due| due > arrival.due);
        self.returned.insert(place, arrival.due);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn window(opened: u64, counted_from: u64, is_measured: bool) -> Window {
        let (opened, counted_from) = (Nanos(opened), Nanos(counted_from));
        let (closes, share) = (Nanos::MAX, u64::MAX);
        Window { serial: 0, target: 0, is_measured, is_last: false, opened, counted_from, closes, share }
    }

    fn arrivals(kind: Arrivals, per_s: f64, phase: f64, seed: u64) -> Vec<u64> {
        let mut schedule = Schedule::new(kind, per_s, phase, seed);
        schedule.resume(&window(1_000, 1_000, true));
        taken(&mut schedule, S + 1_000).into_iter().map(|(at, _)| at).collect()
    }

    /// Intended times of the arrivals until `end`, and whether they are timed.
    fn taken(schedule: &mut Schedule, end: u64) -> Vec<(u64, bool)> {
        let arrivals = std::iter::from_fn(|| schedule.take_before(Nanos(end)));
        arrivals.map(|arrival| (arrival.intended.0, arrival.is_timed)).collect()
    }

    #[test]
    fn the_clock_is_suspended_in_a_pause_and_the_backlog_waits() {
        let mut schedule = Schedule::new(Arrivals::Constant, 4.0, 0.0, 1);
        schedule.resume(&window(S, S, false));
        assert_eq!(taken(&mut schedule, 3 * S / 2), [(S, false), (5 * S / 4, false)]);
        // Two more have become due by the pause. After it they have waited as long as before.
        schedule.pause(Nanos(2 * S));
        schedule.resume(&window(10 * S, 41 * S / 4, true));
        let expected = [(38, false), (39, false), (40, false), (41, true), (42, true)];
        let expected = expected.map(|(quarters, is_timed)| (quarters * S / 4, is_timed));
        assert_eq!(taken(&mut schedule, 43 * S / 4), expected);
    }

    #[test]
    fn an_arrival_is_timed_by_the_slice_in_which_it_became_due() {
        let mut schedule = Schedule::new(Arrivals::Constant, 2.0, 0.0, 1);
        schedule.resume(&window(0, 0, true));
        schedule.pause(Nanos(S));
        schedule.resume(&window(5 * S, 5 * S, false));
        // Two of the first slice, which have waited, and two of the second.
        let timed: Vec<_> = taken(&mut schedule, 6 * S).into_iter().map(|(_, is_timed)| is_timed).collect();
        assert_eq!(timed, [true, true, false, false]);
    }

    #[test]
    fn returned_arrivals_are_taken_again_in_order() {
        let mut schedule = Schedule::new(Arrivals::Constant, 1.0, 0.0, 1);
        schedule.resume(&window(0, 0, true));
        let first: Vec<_> = (0..3).filter_map(|_| schedule.take_before(Nanos(10 * S))).collect();
        for arrival in first {
            schedule.give_back(arrival);
        }
        let instants: Vec<_> = taken(&mut schedule, 5 * S).into_iter().map(|(at, _)| at / S).collect();
        assert_eq!(instants, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn constant_arrivals_are_evenly_spread_and_none_is_lost_to_rounding() {
        let instants = arrivals(Arrivals::Constant, 3_000.0, 0.5, 1);
        assert_eq!(instants.len(), 3_000);
        assert_eq!(instants[0], 1_000 + 166_666);
        assert!(instants.windows(2).all(|pair| (333_333..=333_334).contains(&(pair[1] - pair[0]))));
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_the_variance_of_a_poisson_process() {
        let instants = arrivals(Arrivals::Poisson, 10_000.0, 0.0, 42);
        // Mean 10,000, standard deviation 100.
        assert!((9_600..10_400).contains(&instants.len()), "{}", instants.len());
        let gaps: Vec<f64> = instants.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 100_000.0).collect();
        let variance = gaps.iter().map(|gap| (gap - 1.0).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((0.85..1.15).contains(&variance), "{variance}");
    }

    #[test]
    fn the_same_seed_gives_the_same_arrivals() {
        assert_eq!(arrivals(Arrivals::Poisson, 500.0, 0.0, 9), arrivals(Arrivals::Poisson, 500.0, 0.0, 9));
        assert_ne!(arrivals(Arrivals::Poisson, 500.0, 0.0, 9), arrivals(Arrivals::Poisson, 500.0, 0.0, 10));
    }
}
