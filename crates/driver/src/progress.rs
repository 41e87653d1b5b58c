//! What is known of the slice under way, from the reports of the threads.

use serde::Serialize;

use super::client_group::Window;
use super::messages::Drained;
use super::spec::Slice;
use crate::record::{Counts, Histogram, merge_counters, merge_counts};
use reactor::{Nanos, Usage};

/// What ended a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EndedBy {
    /// Its duration was over.
    Time,
    /// Every client had done its transactions.
    Transactions,
    /// The warm-up was ended on order.
    Measure,
    /// The run was stopped, or the server lost.
    Stop,
}

/// The slice under way.
pub struct Progress<'a> {
    pub index: usize,
    pub slice: &'a Slice,
    /// From opening to close, of all its targets alike.
    pub window: Window,
    /// How long it took to give the targets their cores before.
    pub swap: Nanos,
    /// When the last interval ended.
    pub interval_from: Nanos,
    /// When the threads are asked for the next interval: never while they have not all reported the last one, so that
    /// what is slower than the intervals makes them longer, and no queue.
    pub publish_at: Nanos,
    /// When they were asked for the last one.
    pub published_at: Nanos,
    pub targets: Vec<TargetProgress>,
    /// Threads whose clients have done all the transactions of a slice that is bound by them,
    pub threads_done: usize,
    /// of so many that have clients of the target.
    pub threads_sharing: usize,
    /// When the last of them had.
    pub done_at: Nanos,
    /// Whether it was closed by the order that ends the warm-up.
    pub is_warm: bool,
}

impl Progress<'_> {
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

/// What is reported of one target.
pub struct TargetProgress {
    pub target: usize,
    pub parts: Parts,
    pub drained: Parts,
    pub totals_before: Vec<Counts>,
    pub measured: Vec<Counts>,
    pub counters: Vec<u64>,
    pub drained_at: Nanos,
    pub abandoned: u32,
    /// What the threads have used that drive this target.
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

/// Reports of the same moment, from several threads.
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
