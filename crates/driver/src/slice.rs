//! One slice in the control thread: open, intervals, close, drain, events.

use reactor::{Nanos, Usage, usage};
use serde::Serialize;
use serde_json::json;

use super::control::{Control, Halt, Stopped};
use super::event_writer::{by_kind, quantiles};
use super::messages::{Command, Drained, Report};
use super::schedule::Window;
use super::spec::{Role, Slice};
use crate::record::{Counts, Histogram, merge_counters, merge_counts};

/// Time limit of transactions in flight after a stop. The whole stop takes at most 5 s.
const STOP_DRAIN_TIMEOUT: Nanos = Nanos(2_000_000_000);

impl Control<'_, '_> {
    /// Executes one slice, which opens at an agreed instant or at once.
    pub fn slice(&mut self, index: usize, slice: &Slice, agreed: Option<Nanos>) -> Result<(), Halt> {
        let swap = self.share_cores(slice)?;
        let opened = agreed.unwrap_or_else(|| self.clock.now());
        let is_measured = slice.role == Role::Measure;
        let counted_from = if is_measured { opened + self.spec.discarded(slice) } else { opened };
        let closes = opened + slice.duration;
        let (serial, target) = (index as u32, slice.targets[0]);
        let share = slice.transactions.unwrap_or(u64::MAX);
        let window =
            Window { serial, target, is_measured, is_last: false, opened, counted_from, closes, share };
        let is_last =
            |target| !self.spec.slices[index + 1..].iter().any(|later| later.targets.contains(&target));
        let of_target = |&target: &usize| Window { target, is_last: is_last(target), ..window };
        let windows = slice.targets.iter().map(of_target).collect();
        let target_progress = |&target: &usize| TargetProgress::new(target, &self.totals[target], opened);
        let mut progress = Progress {
            index,
            slice,
            window,
            swap,
            interval_from: opened,
            publish_at: opened + self.spec.interval,
            published_at: opened,
            targets: slice.targets.iter().map(target_progress).collect(),
            threads_done: 0,
            threads_sharing: self.spec.threads_of(target).min(self.spec.own_threads().1) as usize,
            done_at: opened,
            is_warm: false,
        };
        let usage_before = usage();
        self.command(&Command::Open(windows))?;
        let halt = self.until_drained(&mut progress)?;
        self.write_slice(progress, usage() - usage_before)?;
        halt.map_or(Ok(()), Err)
    }

    /// Drives the slice until it is drained.
    ///
    /// A reason to stop closes it early, and is returned after draining. It also closes early when every client
    /// has completed its share, or when the warm-up ends.
    fn until_drained(&mut self, progress: &mut Progress<'_>) -> Result<Option<Halt>, Halt> {
        let (mut halt, mut stop_by) = (None, Nanos::MAX);
        let (mut is_closed, mut is_abandoned) = (false, false);
        while !progress.is_drained(self.threads.len()) {
            let now = self.clock.now();
            let closes = progress.window.closes;
            let is_over = now >= closes || progress.is_done() || halt.is_some();
            let is_warm = !is_over && self.warm_up_is_over(progress.index);
            if !is_closed && (is_over || is_warm) {
                progress.is_warm = is_warm;
                progress.window.closes = closes.min(now);
                is_closed = true;
                self.command(&Command::Close)?;
            } else if !is_closed && now >= progress.publish_at {
                (progress.publish_at, progress.published_at) = (Nanos::MAX, now);
                self.command(&Command::Publish)?;
            } else if is_closed && !is_abandoned && now >= stop_by.min(closes + self.spec.drain_timeout) {
                is_abandoned = true;
                self.command(&Command::Abandon)?;
            }
            let drained_by = stop_by.min(progress.window.closes + self.spec.drain_timeout);
            let drain_limit = if is_abandoned { Nanos::MAX } else { drained_by };
            let deadline =
                if is_closed { drain_limit } else { progress.window.closes.min(progress.publish_at) };
            match self.next_report(deadline) {
                Ok(Some(report)) => self.add(progress, report)?,
                Ok(None) => {}
                // A failed thread never reports that it is drained.
                Err(failed @ Halt::Failed(_)) => return Err(failed),
                Err(reason) => {
                    if matches!(reason, Halt::Stopped(Stopped::Stop)) {
                        stop_by = stop_by.min(self.clock.now() + STOP_DRAIN_TIMEOUT);
                    }
                    halt = halt.or(Some(reason));
                }
            }
        }
        Ok(halt)
    }

    fn add(&mut self, progress: &mut Progress<'_>, report: Report) -> Result<(), Halt> {
        let target_progress = |targets: &mut Vec<TargetProgress>, target| {
            targets.iter().position(|target_progress| target_progress.target == target)
        };
        match report {
            Report::Interval { target, totals, latency } => {
                if let Some(place) = target_progress(&mut progress.targets, target) {
                    progress.targets[place].parts.add(&totals, &latency);
                }
                if progress
                    .targets
                    .iter()
                    .all(|target_progress| target_progress.parts.count == self.threads.len())
                {
                    progress.publish_at = progress.next_publication(self.spec.interval);
                    self.write_intervals(progress)?;
                }
            }
            Report::Done { at } => {
                progress.threads_done += 1;
                progress.done_at = progress.done_at.max(at);
            }
            Report::Drained { target, drained } => {
                if let Some(place) = target_progress(&mut progress.targets, target) {
                    progress.targets[place].add(&drained);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Writes the intervals of all targets up to now.
    fn write_intervals(&mut self, progress: &mut Progress<'_>) -> Result<(), Halt> {
        let to = self.clock.now();
        for place in 0..progress.targets.len() {
            let parts = std::mem::take(&mut progress.targets[place].parts);
            self.write_interval(progress, place, parts, to)?;
        }
        progress.interval_from = to;
        Ok(())
    }

    fn write_interval(
        &mut self,
        progress: &Progress<'_>,
        place: usize,
        parts: Parts,
        to: Nanos,
    ) -> Result<(), Halt> {
        let target = progress.targets[place].target;
        let counts = difference(&parts.totals, &self.totals[target]);
        let mut body = json!({"slice": progress.index, "target": target, "role": progress.slice.role, "from_ns": progress.interval_from.0,
            "to_ns": to.0, "kinds": by_kind(&self.workloads[target].kinds(), &counts), "latency_ns": quantiles(&parts.latency)});
        if self.spec.part.is_some() {
            // Percentiles of several engines come from the sum of their histograms.
            body["latency_bins"] = json!(parts.latency.bins());
        }
        self.totals[target] = parts.totals;
        self.write("interval", body)
    }

    /// Writes the last intervals and the slice. `used`: CPU time of this process during the slice.
    fn write_slice(&mut self, mut progress: Progress<'_>, used: Usage) -> Result<(), Halt> {
        let ended_by = progress.ended_by();
        if ended_by == EndedBy::Transactions {
            // The time of completion, not of the report.
            progress.window.closes = progress.done_at;
        } else if progress.slice.transactions.is_some() {
            self.unfinished.push(progress.index);
        }
        let is_alone = progress.targets.len() == 1;
        for place in 0..progress.targets.len() {
            let target_progress = &mut progress.targets[place];
            // The last interval: the remaining latencies, and those of an interval that some threads did not
            // report.
            let mut rest = std::mem::take(&mut target_progress.drained);
            rest.latency.merge(&target_progress.parts.latency);
            let (totals, drained_at) = (rest.totals.clone(), target_progress.drained_at);
            self.write_interval(&progress, place, rest, drained_at)?;
            let used = if is_alone { used } else { progress.targets[place].used };
            self.write_target(&progress, &progress.targets[place], &totals, ended_by, used)?;
        }
        Ok(())
    }

    fn write_target(
        &mut self,
        progress: &Progress<'_>,
        target_progress: &TargetProgress,
        totals: &[Counts],
        ended_by: EndedBy,
        used: Usage,
    ) -> Result<(), Halt> {
        let (target, role, window) = (target_progress.target, progress.slice.role, progress.window);
        let counts = match role {
            Role::Measure => difference(&target_progress.measured, &self.measured[target]),
            Role::WarmUp => difference(totals, &target_progress.totals_before),
        };
        self.measured[target].clone_from(&target_progress.measured);
        self.counters[target].clone_from(&target_progress.counters);
        let body = json!({"slice": progress.index, "target": target, "role": role,
            "opened_ns": window.opened.0, "counted_from_ns": window.counted_from.0, "closed_ns": window.closes.0,
            "drained_ns": target_progress.drained_at.0, "ended_by": ended_by, "kinds": by_kind(&self.workloads[target].kinds(), &counts),
            "driver_cpu_ns": {"user": used.user.0, "system": used.system.0}, "abandoned": target_progress.abandoned,
            "swap_ns": progress.swap.0});
        self.write("slice", body)
    }
}

fn difference(now: &[Counts], before: &[Counts]) -> Vec<Counts> {
    let zero = Counts::default();
    now.iter().enumerate().map(|(kind, counts)| counts.since(before.get(kind).unwrap_or(&zero))).collect()
}

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
#[derive(Default)]
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
        Self { target, totals_before: totals.to_vec(), drained_at: opened, ..Self::default() }
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
