//! Messages between the control thread and the worker threads: commands to them, reports from them.

use rustix::thread::CpuSet;

use super::client_group::Window;
use crate::record::{Counts, Histogram};
use reactor::{Error, Nanos, Usage};

/// A command of the control thread. Each command goes to every thread.
#[derive(Clone)]
pub enum Command {
    /// Measure the round trip to a target, in the thread that has its first client.
    Calibrate(usize),
    /// Keep to these cores whoever drives the target.
    Keep(Vec<(usize, CpuSet)>),
    /// Drive: one target, or several at once.
    Open(Vec<Window>),
    /// Report the interval.
    Publish,
    /// Close the open slice, if it has not closed by itself, and report when it is drained.
    Close,
    /// Give up what is still in flight.
    Abandon,
    /// Disconnect, and report everything.
    Finish,
}

/// Input of the control thread.
pub enum Input {
    /// From a thread.
    Report(Report),
    /// From outside: pass the barrier.
    Continue,
    /// From outside: the servers are warm.
    Measure,
    /// From outside: end gracefully.
    Stop,
    /// From outside: a line that is not a command.
    Misunderstood(String),
}

/// A report of a worker thread.
pub enum Report {
    /// A client of a target is ready.
    Connected(usize),
    /// A client of a target could not be made ready.
    Failed { target: usize, stage: &'static str, error: Error },
    /// See [`ClientEvent::Calibrated`].
    Calibrated { round_trips: Histogram, server_version: String },
    /// The open slice so far: totals of the target, latencies since the last report.
    Interval { target: usize, totals: Vec<Counts>, latency: Histogram },
    /// The clients of the open slice have done their shares.
    Done { at: Nanos },
    /// The open slice is drained.
    Drained { target: usize, drained: Drained },
    /// A server reported an error.
    Error { target: usize, sqlstate: Option<String>, message: String },
    /// The thread cannot go on.
    Broken(Error),
    /// A server is gone.
    ServerLost { target: usize, message: String },
}

/// A thread's share of a target's slice, when it is drained.
pub struct Drained {
    /// By kind: everything since connection,
    pub totals: Vec<Counts>,
    /// the measured part of it,
    pub measured: Vec<Counts>,
    /// and the workload's own counters since connection.
    pub counters: Vec<u64>,
    /// Latencies since the last report.
    pub latency: Histogram,
    /// When the last transaction had ended.
    pub at: Nanos,
    /// Transactions given up.
    pub abandoned: u32,
    /// What the thread has used since the slice was opened.
    pub used: Usage,
}

/// The errors of one SQLSTATE and target that a thread reports: the control thread passes on as many of all.
pub const ERRORS_MAX: u32 = 20;
