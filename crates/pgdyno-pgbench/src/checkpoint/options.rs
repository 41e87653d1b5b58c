//! Options of checkpoints.

use crate::values::{Refusal, integer, refuse};

/// Default interval: a compromise between lost work and load.
const INTERVAL_S: u32 = 10;

/// Options of checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// Checkpoint file of a new run.
    pub begin: Option<String>,
    /// Checkpoint file of a run to resume.
    pub resume: Option<String>,
    /// Interval between checkpoints.
    pub interval_s: u32,
}

impl Default for CheckpointOptions {
    fn default() -> Self {
        Self { begin: None, resume: None, interval_s: INTERVAL_S }
    }
}

impl CheckpointOptions {
    /// Parses one of these options.
    pub fn read(&mut self, name: &str, value: &str) -> Result<(), Refusal> {
        match name {
            "checkpoint" => self.begin = Some(value.to_owned()),
            "resume" => self.resume = Some(value.to_owned()),
            _ => self.interval_s = integer(value, "--checkpoint-interval")?,
        }
        Ok(())
    }

    /// Checks the combination of options.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.begin.is_some() && self.resume.is_some() {
            return refuse(
                "--resume goes on writing to its file: it cannot be used together with --checkpoint",
            );
        }
        if self.interval_s != INTERVAL_S && self.begin.is_none() && self.resume.is_none() {
            return refuse("--checkpoint-interval is allowed only with --checkpoint or --resume");
        }
        Ok(())
    }
}
