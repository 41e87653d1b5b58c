//! One slice, as the control thread sees it: opened, followed in intervals, closed, drained, written down.

use serde::Serialize;
use serde_json::json;

use super::control::{Control, Halt};
use super::event;
use super::lane::Window;
use super::spec::{Role, Slice};
use super::worker::{Order, Report};
use crate::io::{Nanos, Usage, usage};
use crate::record::{Counts, Histogram, merge_counts};

/// What ended a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum EndedBy {
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
struct Progress {
    index: usize,
    slice: Slice,
    window: Window,
    /// When the last interval ended.
    interval_from: Nanos,
    /// When the threads are asked for the next interval: never while they have not all reported the last one, so that
    /// what is slower than the intervals makes them longer, and no queue.
    publish_at: Nanos,
    /// When they were asked for the last one.
    published_at: Nanos,
    parts: Parts,
    drained: Parts,
    totals_before: Vec<Counts>,
    measured: Vec<Counts>,
    drained_at: Nanos,
    abandoned: u32,
    /// Threads whose clients have done all the transactions of a slice that is bound by them,
    threads_done: usize,
    /// of so many that have clients of the target.
    threads_sharing: usize,
    /// When the last of them had.
    done_at: Nanos,
    /// Whether it was closed by the order that ends the warm-up.
    is_warm: bool,
}

impl Progress {
    fn is_done(&self) -> bool {
        self.threads_done == self.threads_sharing
    }

    fn ended_by(&self) -> EndedBy {
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

/// Reports of the same moment, from several threads.
#[derive(Default)]
struct Parts {
    count: usize,
    totals: Vec<Counts>,
    latency: Histogram,
}

impl Parts {
    fn add(&mut self, totals: &[Counts], latency: &Histogram) {
        self.count += 1;
        merge_counts(&mut self.totals, totals);
        self.latency.merge(latency);
    }
}

impl Control<'_, '_> {
    /// Drives one slice.
    pub fn slice(&mut self, index: usize, slice: Slice) -> Result<(), Halt> {
        let opened = self.clock.now();
        let is_measured = slice.role == Role::Measure;
        let counted_from = if is_measured { opened + self.spec.discarded(&slice) } else { opened };
        let closes = opened + slice.duration;
        let (serial, target) = (index as u32, slice.target);
        let share = slice.transactions.unwrap_or(u64::MAX);
        let window = Window { serial, target, is_measured, opened, counted_from, closes, share };
        let mut progress = Progress {
            index,
            slice,
            window,
            interval_from: opened,
            publish_at: opened + self.spec.interval,
            published_at: opened,
            parts: Parts::default(),
            drained: Parts::default(),
            totals_before: self.totals[target].clone(),
            measured: Vec::new(),
            drained_at: opened,
            abandoned: 0,
            threads_done: 0,
            threads_sharing: self.spec.threads_of(target) as usize,
            done_at: opened,
            is_warm: false,
        };
        let usage_before = usage();
        self.order(&Order::Open(window))?;
        let halt = self.until_drained(&mut progress)?;
        self.write_slice(&mut progress, usage() - usage_before)?;
        halt.map_or(Ok(()), Err)
    }

    /// Drives the slice to its end. A reason to stop closes it early, and is given back when it is drained. It closes
    /// early, too, when every client has done its share, and when the warm-up is ended.
    fn until_drained(&mut self, progress: &mut Progress) -> Result<Option<Halt>, Halt> {
        let mut halt = None;
        let (mut is_closed, mut is_abandoned) = (false, false);
        while progress.drained.count < self.threads.len() {
            let now = self.clock.now();
            let closes = progress.window.closes;
            let is_over = now >= closes || progress.is_done() || halt.is_some();
            let is_warm = !is_over && self.warm_up_is_over(progress.index);
            if !is_closed && (is_over || is_warm) {
                progress.is_warm = is_warm;
                progress.window.closes = closes.min(now);
                is_closed = true;
                self.order(&Order::Close)?;
            } else if !is_closed && now >= progress.publish_at {
                (progress.publish_at, progress.published_at) = (Nanos::MAX, now);
                self.order(&Order::Publish)?;
            } else if is_closed && !is_abandoned && now >= closes + self.spec.drain_timeout {
                is_abandoned = true;
                self.order(&Order::Abandon)?;
            }
            let drain_limit =
                if is_abandoned { Nanos::MAX } else { progress.window.closes + self.spec.drain_timeout };
            let deadline =
                if is_closed { drain_limit } else { progress.window.closes.min(progress.publish_at) };
            match self.next_report(deadline) {
                Ok(Some(report)) => self.add(progress, report)?,
                Ok(None) => {}
                // A thread that has failed will never report that it is drained.
                Err(failed @ Halt::Failed(_)) => return Err(failed),
                Err(reason) => halt = halt.or(Some(reason)),
            }
        }
        Ok(halt)
    }

    fn add(&mut self, progress: &mut Progress, report: Report) -> Result<(), Halt> {
        match report {
            Report::Interval { totals, latency } => {
                progress.parts.add(&totals, &latency);
                if progress.parts.count == self.threads.len() {
                    let parts = std::mem::take(&mut progress.parts);
                    progress.publish_at = progress.published_at + self.spec.interval;
                    self.write_interval(progress, parts, self.clock.now())?;
                }
            }
            Report::Done { at } => {
                progress.threads_done += 1;
                progress.done_at = progress.done_at.max(at);
            }
            Report::Drained { totals, measured, latency, at, abandoned } => {
                progress.drained.add(&totals, &latency);
                merge_counts(&mut progress.measured, &measured);
                progress.drained_at = progress.drained_at.max(at);
                progress.abandoned += abandoned;
            }
            _ => {}
        }
        Ok(())
    }

    fn write_interval(&mut self, progress: &mut Progress, parts: Parts, to: Nanos) -> Result<(), Halt> {
        let target = progress.slice.target;
        let counts = difference(&parts.totals, &self.totals[target]);
        let from = std::mem::replace(&mut progress.interval_from, to);
        let body = json!({"slice": progress.index, "target": target, "role": progress.slice.role, "from_ns": from.0,
            "to_ns": to.0, "kinds": event::by_kind(&self.jobs[target].kinds(), &counts), "latency_ns": event::quantiles(&parts.latency)});
        self.totals[target] = parts.totals;
        self.write("interval", body)
    }

    fn write_slice(&mut self, progress: &mut Progress, used: Usage) -> Result<(), Halt> {
        // The last interval: what is left, and what an interval that some threads no longer reported has taken.
        let mut rest = std::mem::take(&mut progress.drained);
        rest.latency.merge(&progress.parts.latency);
        let totals = rest.totals.clone();
        self.write_interval(progress, rest, progress.drained_at)?;
        let (target, ended_by) = (progress.slice.target, progress.ended_by());
        if ended_by == EndedBy::Transactions {
            // It was over then, and not when we heard of it.
            progress.window.closes = progress.done_at;
        } else if progress.slice.transactions.is_some() {
            self.unfinished.push(progress.index);
        }
        let window = progress.window;
        let counts = match progress.slice.role {
            Role::Measure => difference(&progress.measured, &self.measured[target]),
            Role::WarmUp => difference(&totals, &progress.totals_before),
        };
        self.measured[target].clone_from(&progress.measured);
        let body = json!({"slice": progress.index, "target": target, "role": progress.slice.role,
            "opened_ns": window.opened.0, "counted_from_ns": window.counted_from.0, "closed_ns": window.closes.0,
            "drained_ns": progress.drained_at.0, "ended_by": ended_by, "kinds": event::by_kind(&self.jobs[target].kinds(), &counts),
            "driver_cpu_ns": {"user": used.user.0, "system": used.system.0}, "abandoned": progress.abandoned});
        self.write("slice", body)
    }
}

fn difference(now: &[Counts], before: &[Counts]) -> Vec<Counts> {
    let zero = Counts::default();
    now.iter().enumerate().map(|(kind, counts)| counts.since(before.get(kind).unwrap_or(&zero))).collect()
}
