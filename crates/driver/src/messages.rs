//! Messages between the control thread and the worker threads: commands and reports.

use std::collections::HashMap;

use rustix::thread::CpuSet;

use super::schedule::Window;
use crate::record::{Counts, Histogram};
use reactor::{Error, Nanos, Usage};

/// A command of the control thread, sent to every thread.
#[derive(Clone)]
pub enum Command {
    /// Measure the round trip to a target, in the thread of its first client.
    Calibrate(usize),
    /// Pin the thread that drives the target to these CPUs.
    Keep(Vec<(usize, CpuSet)>),
    /// Open a slice of one or several targets.
    Open(Vec<Window>),
    /// Report the interval.
    Publish,
    /// Close the open slice, unless it has closed by itself, and report when it is drained.
    Close,
    /// Abandon transactions in flight.
    Abandon,
    /// Disconnect and report all results.
    Finish,
}

/// Input of the control thread.
pub enum Input {
    /// From a worker thread.
    Report(Report),
    /// Command from standard input: pass the barrier.
    Continue,
    /// Command from standard input: open the next slice at this instant of the kernel's monotonic clock.
    Open {
        /// CLOCK_MONOTONIC of this machine.
        at_monotonic: Nanos,
    },
    /// Command from standard input: end the warm-up.
    Measure,
    /// Command from standard input: stop.
    Stop,
    /// A line of standard input that is not a command.
    Misunderstood(String),
}

/// A report of a worker thread.
pub enum Report {
    /// A client of a target is ready.
    Connected(usize),
    /// A client of a target failed to get ready.
    Failed { target: usize, stage: &'static str, error: Error },
    /// See [`ClientEvent::Calibrated`].
    Calibrated { round_trips: Histogram, server_version: String },
    /// The open slice so far: totals of the target, and latencies since the last report.
    Interval { target: usize, totals: Vec<Counts>, latency: Histogram },
    /// The clients of the open slice have completed their shares.
    Done { at: Nanos },
    /// The open slice is drained.
    Drained { target: usize, drained: Drained },
    /// A server reported an error.
    Error { target: usize, sqlstate: Option<String>, message: String },
    /// The thread failed.
    Broken(Error),
    /// The connection to a server is lost.
    ServerLost { target: usize, message: String },
}

/// A thread's results of a target's slice, after it is drained.
pub struct Drained {
    /// By kind: totals since the connection.
    pub totals: Vec<Counts>,
    /// By kind: the measured part.
    pub measured: Vec<Counts>,
    /// The workload's counters since the connection.
    pub counters: Vec<u64>,
    /// Latencies since the last report.
    pub latency: Histogram,
    /// End of the last transaction.
    pub at: Nanos,
    /// Number of abandoned transactions.
    pub abandoned: u32,
    /// CPU time of the thread since the slice was opened.
    pub used: Usage,
}

/// Maximum number of errors per SQLSTATE and target that a thread reports. The control thread has the same
/// limit over all threads.
const ERRORS_MAX: u32 = 20;

/// Number of errors by target and SQLSTATE.
#[derive(Default)]
pub struct ErrorCounts(HashMap<(usize, Option<String>), u32>);

impl ErrorCounts {
    /// Counts an error. Returns whether it is to be reported.
    pub fn add(&mut self, target: usize, sqlstate: Option<&str>) -> bool {
        let count = self.0.entry((target, sqlstate.map(str::to_owned))).or_default();
        *count += 1;
        *count <= ERRORS_MAX
    }
}
