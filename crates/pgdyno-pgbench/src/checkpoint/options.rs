//! The options about checkpoints.

use crate::refusal::{Refusal, refuse};
use crate::values::integer;

/// Often enough to lose little, seldom enough to be no load.
const INTERVAL_S: u32 = 10;

/// As asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// The file of a new run.
    pub begin: Option<String>,
    /// The file of a run that is to go on.
    pub resume: Option<String>,
    /// How often it is written.
    pub interval_s: u32,
}

impl Default for CheckpointOptions {
    fn default() -> Self {
        Self { begin: None, resume: None, interval_s: INTERVAL_S }
    }
}

impl CheckpointOptions {
    /// Takes one of the options.
    pub fn read(&mut self, name: &str, value: &str) -> Result<(), Refusal> {
        match name {
            "checkpoint" => self.begin = Some(value.to_owned()),
            "resume" => self.resume = Some(value.to_owned()),
            _ => self.interval_s = integer(value, "--checkpoint-interval")?,
        }
        Ok(())
    }

    /// What they mean together.
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
