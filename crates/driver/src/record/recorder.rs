//! What one thread records of one target.

use std::collections::BTreeMap;

use super::{Counts, Histogram, Outcome};
use reactor::Nanos;

/// One transaction, ended.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Index of its kind.
    pub kind: usize,
    /// How it ended.
    pub outcome: Outcome,
    /// Attempts beyond the first.
    pub retries: u32,
    /// When it should have been sent.
    pub intended: Nanos,
    /// When its first attempt was sent.
    pub sent: Nanos,
    /// When the end of its last attempt's answer was here, or when it was skipped.
    pub done: Nanos,
    /// Whether it is a part of the histograms: it was intended between `counted_from` and `closed` of a measured slice,
    /// whenever it was done. Those in flight at the close are the slow ones more often than not; without them, or with
    /// those begun before, latencies would come out too low or too high.
    pub is_timed: bool,
}

/// The measured part of one kind.
#[derive(Clone, Default)]
pub struct Kind {
    /// Transactions by outcome.
    pub counts: Counts,
    /// The failed ones by SQLSTATE, or by a word where the server gave none.
    pub failures: BTreeMap<String, u64>,
    /// The ok ones that were timed.
    pub timed: u64,
    /// done − intended of the timed ones, as the following two.
    pub latency: Histogram,
    /// done − sent.
    pub service: Histogram,
    /// sent − intended.
    pub lag: Histogram,
    /// How long the skipped ones that were timed had waited: their latency is longer.
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
            (self.latency.len(), self.skipped.len()),
            (self.timed, self.counts.skipped),
            "each timed success and each skipped one is in its histogram, and nothing else"
        );
    }
}

/// What a thread has recorded of a target since it connected.
#[derive(Clone, Default)]
pub struct Recorder {
    /// Transactions that were begun. Once drained, as many as have ended.
    pub begun: u64,
    /// Connections that broke or were ended by the server, whether they could be replaced or not.
    pub connections_lost: u64,
    /// The workload's own counters, by index.
    pub counters: Vec<u64>,
    /// Whether `sent` may differ from `intended`. Where it may not, service is latency, and lag is made at the end.
    can_lag: bool,
    totals: Vec<Counts>,
    measured: Vec<Kind>,
    interval: Histogram,
}

/// A record at the end of the run.
#[derive(Clone, Default)]
pub struct Finished {
    /// See [`Recorder`].
    pub connections_lost: u64,
    /// See [`Recorder`].
    pub counters: Vec<u64>,
    /// By kind: everything since connection.
    pub totals: Vec<Counts>,
    /// By kind: the measured part.
    pub measured: Vec<Kind>,
}

impl Recorder {
    /// An empty record of so many kinds and counters; `can_lag` unless every transaction is sent at its intended instant.
    #[must_use]
    pub fn new(kinds: usize, counters: usize, can_lag: bool) -> Self {
        let totals = vec![Counts::default(); kinds];
        let (measured, interval) = (vec![Kind::default(); kinds], Histogram::default());
        Self {
            begun: 0,
            connections_lost: 0,
            counters: vec![0; counters],
            can_lag,
            totals,
            measured,
            interval,
        }
    }

    /// Records a transaction. `is_counted`: it is a part of the counts, because it was done between `counted_from` and
    /// `closed` of a measured slice. A rate is their number over that time.
    #[inline]
    pub fn add(&mut self, sample: &Sample, is_counted: bool) {
        let Sample { kind, outcome, retries, intended, sent, done, is_timed } = *sample;
        self.totals[kind].add(outcome, retries);
        let is_ok = outcome == Outcome::Ok;
        if is_ok {
            self.interval.record(done - intended);
        }
        let kind = &mut self.measured[kind];
        if is_counted {
            kind.counts.add(outcome, retries);
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
        }
    }

    /// Records why a transaction of the measured part failed.
    pub fn add_failure(&mut self, kind: usize, why: &str) {
        *self.measured[kind].failures.entry(why.to_owned()).or_default() += 1;
    }

    /// By kind: everything so far.
    #[must_use]
    pub fn totals(&self) -> Vec<Counts> {
        self.totals.clone()
    }

    /// By kind: the measured part so far.
    #[must_use]
    pub fn measured(&self) -> Vec<Counts> {
        self.measured.iter().map(|kind| kind.counts).collect()
    }

    /// The latencies of all successes since the last call.
    pub fn take_interval(&mut self) -> Histogram {
        std::mem::take(&mut self.interval)
    }

    /// Closes the record.
    #[must_use]
    pub fn finish(mut self) -> Finished {
        if !self.can_lag {
            for kind in &mut self.measured {
                kind.service = kind.latency.clone();
                kind.lag.record_many(Nanos::ZERO, kind.latency.len());
            }
        }
        let Self { connections_lost, counters, totals, measured, .. } = self;
        Finished { connections_lost, counters, totals, measured }
    }
}

impl Finished {
    /// Adds another thread's record of the same target.
    pub fn merge(&mut self, other: &Self) {
        self.connections_lost += other.connections_lost;
        merge_counters(&mut self.counters, &other.counters);
        merge_counts(&mut self.totals, &other.totals);
        self.measured.resize_with(other.measured.len(), Kind::default);
        for (mine, theirs) in self.measured.iter_mut().zip(&other.measured) {
            mine.merge(theirs);
        }
    }
}

/// Adds counters one by one; an empty list takes the length of the other.
pub fn merge_counters(into: &mut Vec<u64>, other: &[u64]) {
    into.resize(other.len(), 0);
    into.iter_mut().zip(other).for_each(|(mine, theirs)| *mine += theirs);
}

/// Adds counts kind by kind; an empty list takes the length of the other.
pub fn merge_counts(into: &mut Vec<Counts>, other: &[Counts]) {
    into.resize_with(other.len(), Counts::default);
    for (mine, theirs) in into.iter_mut().zip(other) {
        mine.merge(theirs);
    }
}
