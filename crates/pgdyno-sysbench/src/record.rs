//! What is counted and timed of a run.

use std::collections::VecDeque;

use driver::Stream;
use reactor::Nanos;
use sysbench::Histogram;
use sysbench::counts::Counts;

/// What the clients of a thread have done since the last report of their kind.
#[derive(Clone, Debug)]
pub struct Interval {
    /// Events that have ended.
    pub events: u64,
    /// Their latencies, in ms.
    pub latencies: Histogram,
    /// The shortest; the greatest number without events.
    min: Nanos,
    /// The longest.
    pub max: Nanos,
    /// All of them together.
    pub sum: Nanos,
    /// Queries and errors.
    pub counts: Counts,
}

impl Default for Interval {
    fn default() -> Self {
        let latencies = Histogram::of_latencies();
        let (min, max, sum) = (Nanos::MAX, Nanos::ZERO, Nanos::ZERO);
        Self { events: 0, latencies, min, max, sum, counts: Counts::default() }
    }
}

impl Interval {
    /// Counts an event.
    pub fn add(&mut self, latency: Nanos, counts: &Counts) {
        self.events += 1;
        self.latencies.update(latency.0 as f64 / 1e6);
        self.min = self.min.min(latency);
        self.max = self.max.max(latency);
        self.sum = self.sum + latency;
        self.counts.merge(counts);
    }

    /// The shortest latency; 0 without events.
    pub fn min(&self) -> Nanos {
        if self.events > 0 { self.min } else { Nanos::ZERO }
    }

    /// Adds another thread's.
    pub fn merge(&mut self, other: &Self) {
        self.events += other.events;
        self.latencies.merge(&other.latencies);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum = self.sum + other.sum;
        self.counts.merge(&other.counts);
    }
}

/// What the clients of a thread have done.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Since the last intermediate report.
    pub recent: Interval,
    /// Since the last checkpoint, or the start.
    pub total: Interval,
    /// By client: its events, and the time that they took.
    pub clients: Vec<(u64, Nanos)>,
}

impl Record {
    /// The record of so many clients.
    pub fn new(clients: usize) -> Self {
        Self { clients: vec![(0, Nanos::ZERO); clients], ..Self::default() }
    }

    /// Counts an event of a client.
    pub fn add(&mut self, client: usize, latency: Nanos, counts: &Counts) {
        self.recent.add(latency, counts);
        self.total.add(latency, counts);
        let (events, time) = &mut self.clients[client];
        *events += 1;
        *time = *time + latency;
    }

    /// Counts queries outside of events.
    pub fn count(&mut self, counts: &Counts) {
        self.recent.counts.merge(counts);
        self.total.counts.merge(counts);
    }

    /// Adds another thread's, behind.
    pub fn merge(&mut self, other: &Self) {
        self.recent.merge(&other.recent);
        self.total.merge(&other.total);
        self.clients.extend_from_slice(&other.clients);
    }
}

/// The arrivals of a rate: Poisson. Those that no client has taken wait in a queue.
#[derive(Clone, Debug)]
pub struct Arrivals {
    stream: Stream,
    mean_ns: f64,
    next: f64,
    queue: VecDeque<Nanos>,
}

impl Arrivals {
    /// Arrivals from `start` on.
    pub fn new(seed: u64, per_s: f64, start: Nanos) -> Self {
        Self { stream: Stream::new(seed), mean_ns: 1e9 / per_s, next: start.0 as f64, queue: VecDeque::new() }
    }

    /// The next arrival.
    pub fn take(&mut self) -> Nanos {
        self.queue.pop_front().unwrap_or_else(|| self.draw())
    }

    /// How many have arrived and wait.
    pub fn waiting(&mut self, now: Nanos) -> usize {
        while self.queue.back().is_none_or(|last| *last <= now) {
            let next = self.draw();
            self.queue.push_back(next);
        }
        self.queue.len() - 1
    }

    fn draw(&mut self) -> Nanos {
        self.next += self.stream.exponential() * self.mean_ns;
        Nanos(self.next as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_of_threads_add_up() {
        let (mut one, mut other) = (Record::new(1), Record::new(2));
        let counts = Counts { reads: 2, ..Counts::default() };
        one.add(0, Nanos(1_000_000), &counts);
        other.add(1, Nanos(3_000_000), &counts);
        one.merge(&other);
        assert_eq!((one.total.events, one.total.min.0, one.total.max.0), (2, 1_000_000, 3_000_000));
        assert_eq!((one.total.sum.0, one.total.counts.reads), (4_000_000, 4));
        assert_eq!(one.clients.iter().map(|(events, _)| *events).collect::<Vec<_>>(), [1, 0, 1]);
    }

    #[test]
    fn arrivals_have_their_rate() {
        let mut arrivals = Arrivals::new(1, 1000.0, Nanos(5));
        let last = (0..10_000).map(|_| arrivals.take()).last().expect("many");
        assert!((9.5e9..10.5e9).contains(&(last.0 as f64)), "{}", last.0);
    }

    #[test]
    fn arrivals_wait_until_they_are_taken() {
        let (mut arrivals, mut same) =
            (Arrivals::new(1, 1000.0, Nanos(0)), Arrivals::new(1, 1000.0, Nanos(0)));
        let taken: Vec<_> = (0..5).map(|_| same.take()).collect();
        assert_eq!(arrivals.waiting(taken[2]), 3);
        assert_eq!((0..5).map(|_| arrivals.take()).collect::<Vec<_>>(), taken);
    }
}
