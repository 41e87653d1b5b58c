//! Control thread: sends commands to the worker threads and writes events from their reports. No client waits
//! for it.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use serde_json::{Value, json};

use super::any_workload::AnyWorkload;
use super::event_writer::{Events, by_name};
use super::messages::{Command, ErrorCounts, Input, Report};
use super::spec::{Role, Spec};
use crate::record::Counts;
use pgwire::SqlState;
use reactor::{Clock, KeptServer, Nanos, Sender};

/// End of a run that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// All slices completed.
    Done,
    /// A command, a signal, or the end of the parent process.
    Stop,
    /// The connection to this target is lost.
    ServerLost(usize),
}

/// Reason why a run failed.
#[derive(Debug)]
pub struct Failure {
    /// Stage of the run.
    pub stage: &'static str,
    /// The target, if any.
    pub target: Option<usize>,
    /// One line.
    pub message: String,
    /// SQLSTATE from the server, if any.
    pub sqlstate: Option<String>,
}

/// Maximum delay of the first transactions of a measured slice after the agreed instant, if the discarded start
/// is shorter. A later start would lower the rate.
const OPEN_LATE_MAX: Nanos = Nanos(50_000_000);

/// Reason why the run ended.
pub enum Halt {
    /// Stopped gracefully.
    Stopped(Stopped),
    /// Failed.
    Failed(Failure),
}

/// State of the control thread.
pub struct Control<'a, 'e> {
    /// Specification of the run.
    pub spec: &'a Spec,
    /// Workload by target.
    pub workloads: &'a [AnyWorkload],
    /// Clock of the run.
    pub clock: Clock,
    /// Input from threads and standard input.
    pub inputs: Receiver<Input>,
    /// Command channels of the threads.
    pub threads: Vec<Sender<Command>>,
    /// Pinned server by target; empty without a CPU partition.
    pub servers: Vec<KeptServer>,
    /// Writer of events.
    pub events: Events<'e>,
    /// By target and kind: totals since the connection, as of the last drained slice or interval.
    pub totals: Vec<Vec<Counts>>,
    /// By target and kind: the measured part, as of the last drained slice.
    pub measured: Vec<Vec<Counts>>,
    /// By target: the workload's counters, as of the last drained slice.
    pub counters: Vec<Vec<u64>>,
    /// Slices limited by transactions that ended before all were completed.
    pub unfinished: Vec<usize>,
    /// Warm-up slices that were omitted, because a command ended the warm-up.
    pub left_out: Vec<usize>,
    /// Whether the command to end the warm-up was received.
    pub is_warm: bool,
    /// Errors of all threads.
    pub errors: ErrorCounts,
}

impl Control<'_, '_> {
    /// Executes the run, from connecting to the last slice.
    pub fn run(&mut self) -> Halt {
        let done = self.drive();
        self.servers.iter().for_each(KeptServer::let_go);
        match done {
            Ok(()) => Halt::Stopped(Stopped::Done),
            Err(halt) => halt,
        }
    }

    fn drive(&mut self) -> Result<(), Halt> {
        self.connect()?;
        self.find_servers()?;
        let spec = self.spec;
        let last = spec.slices.iter().rposition(|slice| slice.role == Role::Measure);
        for (index, slice) in spec.slices.iter().enumerate() {
            if index == spec.warm_ups() {
                self.barrier("measure")?;
            }
            self.take_what_waits()?;
            let agreed = self.agreed_opening(index)?;
            if self.warm_up_is_over(index) {
                self.left_out.push(index);
                continue;
            }
            self.slice(index, slice, agreed)?;
            if Some(index) == last {
                self.barrier("end")?;
            }
        }
        Ok(())
    }

    /// Whether this slice belongs to a warm-up that a command has ended.
    pub fn warm_up_is_over(&self, slice: usize) -> bool {
        self.is_warm && slice < self.spec.warm_ups()
    }

    // ---- connecting

    fn connect(&mut self) -> Result<(), Halt> {
        let began = self.clock.now();
        let own_clients = |target| self.spec.own_clients(target);
        let mut missing = (0..self.spec.targets.len()).map(own_clients).collect::<Vec<_>>();
        let mut connected_at = vec![began; missing.len()];
        while missing.iter().any(|&missing| missing > 0) {
            if let Some(Report::Connected(target)) = self.next_report(Nanos::MAX)? {
                missing[target] -= 1;
                connected_at[target] = self.clock.now();
            }
        }
        for (target, connected_at) in connected_at.into_iter().enumerate() {
            self.command(&Command::Calibrate(target))?;
            let (round_trips, server_version) = loop {
                if let Some(Report::Calibrated { round_trips, server_version }) =
                    self.next_report(Nanos::MAX)?
                {
                    break (round_trips, server_version);
                }
            };
            let [p50, p99] = [0.5, 0.99].map(|quantile| round_trips.quantile_ns(quantile));
            self.write(
                "connected",
                json!({"target": target, "clients": self.spec.own_clients(target), "server_version": server_version,
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

    /// Waits until the engines of a run have agreed on the instant at which a slice opens, and returns it. All of them
    /// are drained then. `None`: this is the only engine, or the warm-up is over.
    fn agreed_opening(&mut self, slice: usize) -> Result<Option<Nanos>, Halt> {
        if self.spec.part.is_none() || self.warm_up_is_over(slice) {
            return Ok(None);
        }
        self.write("ready", json!({"slice": slice}))?;
        let at = loop {
            match self.inputs.recv() {
                Ok(Input::Open { at_monotonic }) => break at_monotonic,
                Ok(input) => self.take(input).map(|_| ())?,
                Err(_) => return Err(gone()),
            }
            if self.warm_up_is_over(slice) {
                return Ok(None);
            }
        };
        let now = || self.clock.epoch() + self.clock.now();
        std::thread::sleep(Duration::from_nanos((at - now()).0));
        let late = now() - at;
        let of_slice = &self.spec.slices[slice];
        if of_slice.role == Role::Measure && late > OPEN_LATE_MAX.max(self.spec.discarded(of_slice)) {
            let message =
                format!("slice {slice} opened {:.0} ms after the agreed instant", late.as_s() * 1e3);
            return Err(failed("drive", None, message, None));
        }
        Ok(Some(at - self.clock.epoch()))
    }

    fn summary(&self, target: usize) -> Value {
        let counts = &self.totals[target];
        let transactions: u64 = counts.iter().map(Counts::executed).sum();
        let counters = by_name(self.workloads[target].counters(), &self.counters[target]);
        json!({"transactions": transactions, "counters": counters})
    }

    // ---- input and output

    /// Handles all pending input. Between slices no report is expected.
    fn take_what_waits(&mut self) -> Result<(), Halt> {
        while let Ok(input) = self.inputs.try_recv() {
            self.take(input)?;
        }
        Ok(())
    }

    /// Waits for input until the instant `until`. Returns a report, `None` for other input or none, and an
    /// error to end the run.
    pub fn next_report(&mut self, until: Nanos) -> Result<Option<Report>, Halt> {
        let left = until - self.clock.now();
        match self.inputs.recv_timeout(Duration::from_nanos(left.0)) {
            Ok(input) => self.take(input),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
        }
    }

    /// Handles input other than reports.
    fn take(&mut self, input: Input) -> Result<Option<Report>, Halt> {
        match input {
            Input::Continue => Ok(None),
            Input::Open { .. } => {
                Err(failed("drive", None, "not ready: open before the event ready".to_owned(), None))
            }
            Input::Measure => {
                self.is_warm = true;
                Ok(None)
            }
            Input::Stop => Err(Halt::Stopped(Stopped::Stop)),
            Input::Misunderstood(line) => Err(failed(
                "drive",
                None,
                format!("not an order: {line}; expected {{\"do\":\"continue\"}}, measure, open or stop"),
                None,
            )),
            Input::Report(Report::Error { target, sqlstate, message }) => {
                self.write_error(target, sqlstate.as_deref(), &message)?;
                Ok(None)
            }
            Input::Report(Report::Failed { target, stage, error }) => {
                let sqlstate = error.sqlstate();
                let mut message = error.to_string();
                if sqlstate == Some(SqlState::TOO_MANY_CONNECTIONS) {
                    message += "; raise max_connections of the server, or use fewer clients";
                }
                Err(failed(stage, Some(target), message, sqlstate.map(|code| code.to_string())))
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
        if !self.errors.add(target, sqlstate) {
            return Ok(());
        }
        let kind = if sqlstate.is_some() { "server" } else { "connection" };
        self.write("error", json!({"target": target, "kind": kind, "sqlstate": sqlstate, "message": message}))
    }

    /// Sends a command to every thread.
    pub fn command(&self, command: &Command) -> Result<(), Halt> {
        self.threads.iter().try_for_each(|thread| {
            thread.send(command.clone()).map_err(|error| failed("drive", None, error.to_string(), None))
        })
    }

    /// Writes an event. If nobody reads it, the parent process has exited.
    pub fn write(&mut self, event: &str, body: Value) -> Result<(), Halt> {
        self.events.write(event, body).map_err(|_| Halt::Stopped(Stopped::Stop))
    }
}

/// See [`Failure`].
pub fn failed(stage: &'static str, target: Option<usize>, message: String, sqlstate: Option<String>) -> Halt {
    Halt::Failed(Failure { stage, target, message, sqlstate })
}

fn gone() -> Halt {
    failed("drive", None, "a worker thread has ended".to_owned(), None)
}
