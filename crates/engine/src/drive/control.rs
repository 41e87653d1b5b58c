//! The control thread: it orders the threads what to drive when, and writes what they report. No client waits for it.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use serde_json::{Value, json};

use super::event::{self, Events};
use super::job::Job;
use super::lane::Window;
use super::spec::{Role, Slice, Spec};
use super::worker::{ERRORS_MAX, Input, Order, Report};
use crate::io::{Clock, Nanos, Sender, Usage, usage};
use crate::record::{Counts, Histogram, merge_counts};

/// How a run ended that was not cut off by a failure of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// All slices were driven.
    Done,
    /// On order, or because a signal came, or because our parent has gone.
    Stop,
    /// The server of this target has gone.
    ServerLost(usize),
}

/// Why a run failed.
#[derive(Debug)]
pub struct Failure {
    /// Where in the run.
    pub stage: &'static str,
    /// At which target, if at one.
    pub target: Option<usize>,
    /// One line.
    pub message: String,
    /// Where the server gave one.
    pub sqlstate: Option<String>,
}

/// Why the run does not go on.
pub enum Halt {
    /// Gracefully.
    Stopped(Stopped),
    /// By a failure.
    Failed(Failure),
}

/// See the module.
pub struct Control<'a, 'e> {
    /// The run.
    pub spec: &'a Spec,
    /// By target: what its clients do.
    pub jobs: &'a [Box<dyn Job>],
    /// The run's clock.
    pub clock: Clock,
    /// What comes in.
    pub inputs: Receiver<Input>,
    /// The ways to the threads.
    pub threads: Vec<Sender<Order>>,
    /// Where events go.
    pub events: Events<'e>,
    /// By target and kind: everything since connection, as of the last drained slice or interval.
    pub totals: Vec<Vec<Counts>>,
    /// By target and kind: the measured part, as of the last drained slice.
    pub measured: Vec<Vec<Counts>>,
    /// Errors passed on, by target and SQLSTATE.
    pub errors: Vec<(usize, Option<String>, u32)>,
}

/// The slice under way.
struct Progress {
    index: usize,
    slice: Slice,
    window: Window,
    /// When the last interval ended.
    interval_from: Nanos,
    parts: Parts,
    drained: Parts,
    totals_before: Vec<Counts>,
    measured: Vec<Counts>,
    drained_at: Nanos,
    abandoned: u32,
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
    /// The whole run, from connecting to the last slice.
    pub fn run(&mut self) -> Halt {
        match self.drive() {
            Ok(()) => Halt::Stopped(Stopped::Done),
            Err(halt) => halt,
        }
    }

    fn drive(&mut self) -> Result<(), Halt> {
        self.connect()?;
        let is_measured = |slice: &Slice| slice.role == Role::Measure;
        let first = self.spec.slices.iter().position(is_measured);
        let last = self.spec.slices.iter().rposition(is_measured);
        for (index, slice) in self.spec.slices.iter().enumerate() {
            if Some(index) == first {
                self.barrier("measure")?;
            }
            self.slice(index, *slice)?;
            if Some(index) == last {
                self.barrier("end")?;
            }
        }
        Ok(())
    }

    // ---- connecting

    fn connect(&mut self) -> Result<(), Halt> {
        let began = self.clock.now();
        let mut missing = self.spec.drivings().map(|driving| driving.clients).collect::<Vec<_>>();
        let mut connected_at = vec![began; missing.len()];
        while missing.iter().any(|&missing| missing > 0) {
            if let Report::Connected(target) = self.next_report(Nanos::MAX)?.ok_or_else(gone)? {
                missing[target] -= 1;
                connected_at[target] = self.clock.now();
            }
        }
        for (target, connected_at) in connected_at.into_iter().enumerate() {
            self.order(&Order::Calibrate(target))?;
            let (round_trips, server_version) = loop {
                if let Report::Calibrated { round_trips, server_version } =
                    self.next_report(Nanos::MAX)?.ok_or_else(gone)?
                {
                    break (round_trips, server_version);
                }
            };
            let [p50, p99] = [0.5, 0.99].map(|quantile| round_trips.quantile_ns(quantile));
            self.write(
                "connected",
                json!({"target": target, "clients": self.spec.driving(target).clients, "server_version": server_version,
                    "connect_s": (connected_at - began).as_s(), "round_trip_ns": {"p50": p50, "p99": p99}}),
            )?;
        }
        Ok(())
    }

    // ---- barriers

    fn barrier(&mut self, name: &str) -> Result<(), Halt> {
        if !self.spec.barriers {
            return Ok(());
        }
        let totals: Vec<_> = (0..self.totals.len()).map(|target| self.summary(target)).collect();
        self.write("barrier", json!({"name": name, "at_ns": self.clock.now().0, "totals": totals}))?;
        loop {
            match self.inputs.recv() {
                Ok(Input::Continue) => return Ok(()),
                Ok(input) => self.take(input).map(|_| ())?,
                Err(_) => return Err(gone()),
            }
        }
    }

    fn summary(&self, target: usize) -> Value {
        let counts = &self.totals[target];
        let transactions: u64 = counts.iter().map(Counts::executed).sum();
        json!({"transactions": transactions, "committed_new_orders": new_orders(&*self.jobs[target], counts)})
    }

    // ---- slices

    fn slice(&mut self, index: usize, slice: Slice) -> Result<(), Halt> {
        let opened = self.clock.now();
        let is_measured = slice.role == Role::Measure;
        let counted_from = if is_measured { opened + self.spec.discard } else { opened };
        let closes = opened + slice.duration;
        let (serial, target) = (index as u32, slice.target);
        let window = Window { serial, target, is_measured, opened, counted_from, closes };
        let mut progress = Progress {
            index,
            slice,
            window,
            interval_from: opened,
            parts: Parts::default(),
            drained: Parts::default(),
            totals_before: self.totals[target].clone(),
            measured: Vec::new(),
            drained_at: opened,
            abandoned: 0,
        };
        let usage_before = usage();
        self.order(&Order::Open(window))?;
        let halt = self.until_drained(&mut progress)?;
        self.write_slice(&mut progress, usage() - usage_before)?;
        halt.map_or(Ok(()), Err)
    }

    /// Drives the slice to its end. A reason to stop closes it early, and is given back when it is drained.
    fn until_drained(&mut self, progress: &mut Progress) -> Result<Option<Halt>, Halt> {
        let mut halt = None;
        let mut next_publish = progress.window.opened + self.spec.interval;
        let (mut is_closed, mut is_abandoned) = (false, false);
        while progress.drained.count < self.threads.len() {
            let now = self.clock.now();
            let closes = progress.window.closes;
            if !is_closed && (now >= closes || halt.is_some()) {
                progress.window.closes = closes.min(now);
                is_closed = true;
                self.order(&Order::Close)?;
            } else if !is_closed && now >= next_publish {
                next_publish = now.max(next_publish) + self.spec.interval;
                self.order(&Order::Publish)?;
            } else if is_closed && !is_abandoned && now >= closes + self.spec.drain_timeout {
                is_abandoned = true;
                self.order(&Order::Abandon)?;
            }
            let drain_limit =
                if is_abandoned { Nanos::MAX } else { progress.window.closes + self.spec.drain_timeout };
            let deadline = if is_closed { drain_limit } else { progress.window.closes.min(next_publish) };
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
                    self.write_interval(progress, parts, self.clock.now())?;
                }
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
        let (target, window) = (progress.slice.target, progress.window);
        let counts = match progress.slice.role {
            Role::Measure => difference(&progress.measured, &self.measured[target]),
            Role::WarmUp => difference(&totals, &progress.totals_before),
        };
        self.measured[target].clone_from(&progress.measured);
        let body = json!({"slice": progress.index, "target": target, "role": progress.slice.role,
            "opened_ns": window.opened.0, "counted_from_ns": window.counted_from.0, "closed_ns": window.closes.0,
            "drained_ns": progress.drained_at.0, "kinds": event::by_kind(&self.jobs[target].kinds(), &counts),
            "driver_cpu_ns": {"user": used.user.0, "system": used.system.0}, "abandoned": progress.abandoned});
        self.write("slice", body)
    }

    // ---- what comes in, what goes out

    /// The next report, if one comes before the instant `until`. An error is a reason not to go on.
    fn next_report(&mut self, until: Nanos) -> Result<Option<Report>, Halt> {
        loop {
            let input = if until == Nanos::MAX {
                self.inputs.recv().map_err(|_| gone())?
            } else {
                let left = until - self.clock.now();
                match self.inputs.recv_timeout(Duration::from_nanos(left.0)) {
                    Ok(input) => input,
                    Err(RecvTimeoutError::Timeout) => return Ok(None),
                    Err(RecvTimeoutError::Disconnected) => return Err(gone()),
                }
            };
            if let Some(report) = self.take(input)? {
                return Ok(Some(report));
            }
        }
    }

    /// Deals with what is not for the caller.
    fn take(&mut self, input: Input) -> Result<Option<Report>, Halt> {
        match input {
            Input::Continue => Ok(None),
            Input::Stop => Err(Halt::Stopped(Stopped::Stop)),
            Input::Misunderstood(line) => Err(failed(
                "drive",
                None,
                format!("not an order: {line}; expected {{\"do\":\"continue\"}} or stop"),
                None,
            )),
            Input::Report(Report::Error { target, sqlstate, message }) => {
                self.write_error(target, sqlstate.as_deref(), &message)?;
                Ok(None)
            }
            Input::Report(Report::Failed { target, stage, error }) => {
                let sqlstate = error.sqlstate().map(|sqlstate| sqlstate.as_str().to_owned());
                let mut message = error.to_string();
                if sqlstate.as_deref() == Some("53300") {
                    message += "; raise max_connections of the server, or use fewer clients";
                }
                Err(failed(stage, Some(target), message, sqlstate))
            }
            Input::Report(Report::ServerLost { target, message }) => {
                self.write_error(target, None, &format!("the server is gone: {message}"))?;
                Err(Halt::Stopped(Stopped::ServerLost(target)))
            }
            Input::Report(Report::Broken(error)) => Err(failed("drive", None, error.to_string(), None)),
            Input::Report(report) => Ok(Some(report)),
        }
    }

    fn write_error(&mut self, target: usize, sqlstate: Option<&str>, message: &str) -> Result<(), Halt> {
        let place = self.errors.iter().position(|(t, s, _)| (*t, s.as_deref()) == (target, sqlstate));
        let place = place.unwrap_or_else(|| {
            self.errors.push((target, sqlstate.map(str::to_owned), 0));
            self.errors.len() - 1
        });
        self.errors[place].2 += 1;
        if self.errors[place].2 > ERRORS_MAX {
            return Ok(());
        }
        let kind = if sqlstate.is_some() { "server" } else { "connection" };
        self.write("error", json!({"target": target, "kind": kind, "sqlstate": sqlstate, "message": message}))
    }

    fn order(&self, order: &Order) -> Result<(), Halt> {
        self.threads.iter().try_for_each(|thread| {
            thread.send(order.clone()).map_err(|error| failed("drive", None, error.to_string(), None))
        })
    }

    /// Writes an event. When nobody reads them, our parent is gone.
    fn write(&mut self, event: &str, body: Value) -> Result<(), Halt> {
        self.events.write(event, body).map_err(|_| Halt::Stopped(Stopped::Stop))
    }
}

/// Commits of the kind that is counted as new orders; 0 where a workload has none.
pub fn new_orders(job: &dyn Job, counts: &[Counts]) -> u64 {
    job.new_order().and_then(|kind| counts.get(kind)).map_or(0, |counts| counts.ok)
}

fn failed(stage: &'static str, target: Option<usize>, message: String, sqlstate: Option<String>) -> Halt {
    Halt::Failed(Failure { stage, target, message, sqlstate })
}

fn gone() -> Halt {
    failed("drive", None, "a thread of the driver has ended".to_owned(), None)
}

fn difference(now: &[Counts], before: &[Counts]) -> Vec<Counts> {
    let zero = Counts::default();
    now.iter().enumerate().map(|(kind, counts)| counts.since(before.get(kind).unwrap_or(&zero))).collect()
}
