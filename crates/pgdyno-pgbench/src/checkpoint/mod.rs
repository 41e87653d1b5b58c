//! Runs that can be resumed after a crash of driver or machine: `--checkpoint`, `--resume`.
//!
//! | topic | module |
//! |---|---|
//! | position of each client and thread | [`state`] |
//! | checkpoint file, and comparison with the present configuration | [`file`] |
//! | number of transactions after a checkpoint | [`live`] |
//! | start of a run | `resume` |
//! | writing of checkpoints | [`writer`] |
//!
//! A thread's state is captured between two turns of its loop, so it is consistent: every transaction that it
//! counts has ended, and the resumed run executes every other transaction from its start. No client waits for
//! it.

pub mod error;
mod file;
pub mod live;
mod options;
mod resume;
pub mod state;
pub mod writer;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use file::Checkpoint;
pub use live::LiveCounters;
pub use options::CheckpointOptions;
pub use resume::open;
pub use state::{ClientState, ThreadPosition, ThreadState};

use reactor::{Nanos, Usage};

/// Statistics of earlier runs of this checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// Number of resumes.
    pub resumed: u64,
    /// Transactions completed after the checkpoints used to resume: they ran again and were counted once.
    pub run_again: u64,
    /// Number of clients with transactions in flight: upper bound of further transactions that may have run
    /// again.
    pub in_flight_max: u64,
    /// Whether the machine crashed or a file was lost: then `run_again` is a lower bound.
    pub is_incomplete: bool,
}

/// State that earlier runs leave to this one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Before {
    /// Duration.
    pub run: Nanos,
    /// CPU time of their processes.
    pub cpu: Usage,
    /// Statistics.
    pub history: History,
}

/// Files with the state of a run.
pub struct CheckpointFiles {
    /// Checkpoint file.
    pub path: PathBuf,
    /// Interval between checkpoints.
    pub every: Nanos,
    /// Live counters.
    pub live: LiveCounters,
}
