//! Queue of the jobs of a phase.

use std::sync::Mutex;
use std::vec::IntoIter;

use super::dataset::Job;
use super::phase::Phase;

/// Pending jobs of one phase. A free connection takes the next one.
pub struct Queue {
    /// Phase of the jobs.
    pub phase: Phase,
    jobs: Mutex<IntoIter<Job>>,
}

impl Queue {
    /// Creates a queue with all jobs of a round.
    pub fn new(phase: Phase, jobs: Vec<Job>) -> Self {
        Self { phase, jobs: Mutex::new(jobs.into_iter()) }
    }

    /// Takes the next job.
    pub fn take(&self) -> Option<Job> {
        self.jobs.lock().ok()?.next()
    }
}
