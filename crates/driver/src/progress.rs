//! State of the current slice, from the reports of the threads.

use serde::Serialize;

use super::messages::Drained;
use super::schedule::Window;
use super::spec::Slice;
use crate::record::{Counts, Histogram, merge_counters, merge_counts};
use reactor::{Nanos, Usage};

/// Reason why a slice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EndedBy {
    /// Its duration expired.
    Time,
    /// Every client has completed its transactions.
    Transactions,
    /// A command ended the warm-up.
    Measure,
    /// The run was stopped, or a connection was lost.
    Stop,
}

/// The current slice.
pub struct Progress<'a> {
    pub index: usize,
    pub slice: &'a Slice,
    /// From opening to close, for all its targets.
    pub window: Window,
    /// Duration of pinning before the slice.
    pub swap: Nanos,
    /// End of the last interval.
    pub interval_from: Nanos,
    /// When the next interval is requested.
    ///
    /// Never before all threads have reported the last one, so that slow reports lengthen intervals instead of
    /// queuing.
    pub publish_at: Nanos,
    /// When the last interval was requested.
    pub published_at: Nanos,
    pub targets: Vec<TargetProgress>,
    /// Threads that have completed all transactions of a slice limited by transactions.
    pub threads_done: usize,
    /// Threads that have clients of the target.
    pub threads_sharing: usize,
    /// When the last of them completed.
    pub done_at: Nanos,
    /// Whether the command to end the warm-up closed it.
    pub is_warm: bool,
}

impl Progress<'_> {
    /// The first multiple of `interval` since the opening that is more than half an interval after the last
    /// publication. So the intervals of several engines have the same bounds.
    pub fn next_publication(&self, interval: Nanos) -> Nanos {
        let since = (self.published_at - self.window.opened).0 + interval.0 / 2;
        self.window.opened + Nanos((since / interval.0 + 1) * interval.0)
    }

    pub fn is_done(&self) -> bool {
        self.slice.transactions.is_some() && self.threads_done == self.threads_sharing
    }

    pub fn is_drained(&self, threads: usize) -> bool {
        self.targets.iter().all(|target_progress| target_progress.drained.count == threads)
    }

    pub fn ended_by(&self) -> EndedBy {
        if self.is_done() && self.done_at <= self.window.closes {
            EndedBy::Transactions
        } else if self.is_warm {
            EndedBy::Measure
        } else if self.window.closes < self.window.opened + self.slice.duration {
            EndedBy::Stop
        } else {
            EndedBy::Time
        }
    }
}

/// Results of one target.
pub struct TargetProgress {
    pub target: usize,
    pub parts: Parts,
    pub drained: Parts,
    pub totals_before: Vec<Counts>,
    pub measured: Vec<Counts>,
    pub counters: Vec<u64>,
    pub drained_at: Nanos,
    pub abandoned: u32,
    /// CPU time of the threads that drive this target.
    pub used: Usage,
}

impl TargetProgress {
    pub fn new(target: usize, totals: &[Counts], opened: Nanos) -> Self {
        Self {
            target,
            parts: Parts::default(),
            drained: Parts::default(),
            totals_before: totals.to_vec(),
            measured: Vec::new(),
            counters: Vec::new(),
            drained_at: opened,
            abandoned: 0,
            used: Usage::default(),
        }
    }

    pub fn add(&mut self, drained: &Drained) {
        self.drained.add(&drained.totals, &drained.latency);
        merge_counts(&mut self.measured, &drained.measured);
        merge_counters(&mut self.counters, &drained.counters);
        self.drained_at = self.drained_at.max(drained.at);
        self.abandoned += drained.abandoned;
        self.used += drained.used;
    }
}

/// Reports of several threads for the same moment.
#[derive(Default)]
pub struct Parts {
    pub count: usize,
    pub totals: Vec<Counts>,
    pub latency: Histogram,
}

impl Parts {
    pub fn add(&mut self, totals: &[Counts], latency: &Histogram) {
        self.count += 1;
        merge_counts(&mut self.totals, totals);
        self.latency.merge(latency);
    }
}
