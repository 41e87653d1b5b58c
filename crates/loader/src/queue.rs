//! The jobs of a phase that are still to be done.

use std::sync::Mutex;
use std::vec::IntoIter;

use super::dataset::Job;
use super::phase::Phase;

/// Jobs of one phase that wait for a connection: whoever is free takes the next.
pub struct Queue {
    /// What they belong to.
    pub phase: Phase,
    jobs: Mutex<IntoIter<Job>>,
}

impl Queue {
    /// All jobs of a round.
    pub fn new(phase: Phase, jobs: Vec<Job>) -> Self {
        Self { phase, jobs: Mutex::new(jobs.into_iter()) }
    }

    /// The next job.
    pub fn take(&self) -> Option<Job> {
        self.jobs.lock().ok()?.next()
    }
}
