//! Record of one thread and target.

use std::collections::BTreeMap;

use super::counts::{Counts, Outcome};
use super::histogram::Histogram;
use reactor::Nanos;

/// A completed transaction.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Index of its kind.
    pub kind: usize,
    /// Outcome.
    pub outcome: Outcome,
    /// Scheduled send time.
    pub intended: Nanos,
    /// Send time of the first attempt.
    pub sent: Nanos,
    /// When the response of the last attempt was complete, or when the transaction was skipped.
    pub done: Nanos,
    /// Whether it is included in the histograms: its intended time is between `counted_from` and `closed` of a
    /// measured slice, whatever its end.
    ///
    /// Transactions in flight at the close tend to be slow. Excluding them, or including those started earlier,
    /// would bias latencies.
    pub is_timed: bool,
}

/// The measured part of one kind.
#[derive(Clone, Default)]
pub struct Kind {
    /// Transactions by outcome.
    pub counts: Counts,
    /// Failed transactions by SQLSTATE, or by a word if the server sent none.
    pub failures: BTreeMap<String, u64>,
    /// Number of timed ok transactions.
    pub timed: u64,
    /// Latency (done − intended) of timed transactions, as are the following two.
    pub latency: Histogram,
    /// Service time (done − sent).
    pub service: Histogram,
    /// Lag (sent − intended).
    pub lag: Histogram,
    /// Waiting time of skipped timed transactions, a lower bound of their latency.
    pub skipped: Histogram,
}

impl Kind {
    fn merge(&mut self, other: &Self) {
        self.counts.merge(&other.counts);
        for (failure, count) in &other.failures {
            *self.failures.entry(failure.clone()).or_default() += count;
        }
        self.timed += other.timed;
        self.latency.merge(&other.latency);
        self.service.merge(&other.service);
        self.lag.merge(&other.lag);
        self.skipped.merge(&other.skipped);
        assert_eq!(
            (self.latency.count(), self.skipped.count()),
            (self.timed, self.counts.skipped),
            "each timed success and each skipped one is in its histogram, and nothing else"
        );
    }
}

/// Record of a thread and target since the connection.
#[derive(Clone, Default)]
pub struct Recorder {
    /// Number of started transactions. After draining, it equals the number of outcomes.
    pub begun: u64,
    /// Connections that broke or were closed by the server, restored or not.
    pub connections_lost: u64,
    /// The workload's counters, by index.
    pub counters: Vec<u64>,
    /// Whether `sent` may differ from `intended`. If not, service time equals latency, and the lag is created
    /// at the end.
    can_lag: bool,
    /// By kind: totals since the connection.
    pub totals: Vec<Counts>,
    /// By kind: the measured part.
    pub measured: Vec<Kind>,
    interval: Histogram,
}

impl Recorder {
    /// An empty record. `can_lag` is false if every transaction is sent at its intended time.
    pub fn new(kinds: usize, counters: usize, can_lag: bool) -> Self {
        let totals = vec![Counts::default(); kinds];
        let measured = vec![Kind::default(); kinds];
        Self { counters: vec![0; counters], can_lag, totals, measured, ..Self::default() }
    }

    /// Records a transaction.
    ///
    /// `is_counted`: it is included in the counts, because it was done between `counted_from` and `closed` of a
    /// measured slice. A rate is their number divided by that time.
    #[inline]
    pub fn add(&mut self, sample: &Sample, is_counted: bool) {
        let Sample { kind, outcome, intended, sent, done, is_timed } = *sample;
        self.totals[kind].add(outcome);
        let is_ok = outcome == Outcome::Ok;
        if is_ok {
            self.interval.record(done - intended);
        }
        let kind = &mut self.measured[kind];
        if is_counted {
            kind.counts.add(outcome);
        }
        if is_timed && is_ok {
            kind.timed += 1;
            kind.latency.record(done - intended);
            if self.can_lag {
                kind.service.record(done - sent);
                kind.lag.record(sent - intended);
            }
        } else if is_timed && outcome == Outcome::Skipped {
            kind.skipped.record(done - intended);
        } else if is_ok {
            // In the warm-up or a discarded part, so that no counted part includes the time.
            kind.latency.reserve();
            if self.can_lag {
                kind.service.reserve();
                kind.lag.reserve();
            }
        }
    }

    /// Records another attempt at a transaction. `is_counted`: it begins in the counted part of a measured slice.
    pub fn add_retry(&mut self, kind: usize, is_counted: bool) {
        self.totals[kind].retried += 1;
        self.measured[kind].counts.retried += u64::from(is_counted);
    }

    /// Records the reason of a failed transaction of the measured part.
    pub fn add_failure(&mut self, kind: usize, why: &str) {
        *self.measured[kind].failures.entry(why.to_owned()).or_default() += 1;
    }

    /// By kind: the measured part so far.
    pub fn measured(&self) -> Vec<Counts> {
        self.measured.iter().map(|kind| kind.counts).collect()
    }

    /// Takes the latencies of all ok transactions since the last call.
    pub fn take_interval(&mut self) -> Histogram {
        let taken = std::mem::take(&mut self.interval);
        if taken.count() > 0 {
            // Now rather than for the next transaction, which may be measured.
            self.interval.reserve();
        }
        taken
    }

    /// Completes the merged record of all threads.
    pub fn finish(mut self) -> Self {
        if !self.can_lag {
            for kind in &mut self.measured {
                kind.service = kind.latency.clone();
                kind.lag.record_many(Nanos::ZERO, kind.latency.count());
            }
        }
        self
    }

    /// Adds the record of another thread for the same target.
    pub fn merge(&mut self, other: &Self) {
        self.can_lag |= other.can_lag;
        self.begun += other.begun;
        self.connections_lost += other.connections_lost;
        merge_counters(&mut self.counters, &other.counters);
        merge_counts(&mut self.totals, &other.totals);
        self.measured.resize_with(other.measured.len(), Kind::default);
        for (mine, theirs) in self.measured.iter_mut().zip(&other.measured) {
            mine.merge(theirs);
        }
    }
}

/// Adds counters element by element. An empty list takes the length of the other.
pub fn merge_counters(into: &mut Vec<u64>, other: &[u64]) {
    into.resize(other.len(), 0);
    into.iter_mut().zip(other).for_each(|(mine, theirs)| *mine += theirs);
}

/// Adds counts by kind. An empty list takes the length of the other.
pub fn merge_counts(into: &mut Vec<Counts>, other: &[Counts]) {
    into.resize_with(other.len(), Counts::default);
    for (mine, theirs) in into.iter_mut().zip(other) {
        mine.merge(theirs);
    }
}
