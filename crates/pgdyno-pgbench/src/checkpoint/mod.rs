//! A run that goes on after the driver or the machine died: `--checkpoint`, `--resume`.
//!
//! | question | place |
//! |---|---|
//! | where each client and thread is | [`state`] |
//! | the file that holds all of it, and the comparison with what is asked for now | [`file`] |
//! | how many transactions came after it | [`live`] |
//! | what a run takes over | `resume` |
//! | writing it, and when | [`writer`] |
//!
//! A thread's state is taken between two of its turns, so it is whole: each transaction that it counts has ended, and each
//! other one of its clients' is carried out, from its begin, by the run that is resumed. No client waits for it.

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

/// Of the runs before this one that had the same goal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// How often it was resumed.
    pub resumed: u64,
    /// Transactions that had ended after the checkpoints that were resumed from: they were run again, and counted once.
    pub run_again: u64,
    /// Clients that had not ended: as many transactions more, at most, may have been run again, those in flight.
    pub in_flight_max: u64,
    /// Whether a machine died, or a file was lost: then `run_again` is what is known of, and there may have been more.
    pub is_incomplete: bool,
}

/// What the runs before this one leave to it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Before {
    /// How long they drove.
    pub run: Nanos,
    /// The processor time of their processes.
    pub cpu: Usage,
    /// How they ended.
    pub history: History,
}

/// The files of a run's state.
pub struct CheckpointFiles {
    /// The checkpoint.
    pub path: PathBuf,
    /// How often it is written.
    pub every: Nanos,
    /// The counters beside it.
    pub live: LiveCounters,
}
