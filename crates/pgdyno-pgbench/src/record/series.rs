//! Time series of transactions, with a resolution of 1 s, doubled when there are too many points.

use serde::{Deserialize, Serialize};

use crate::statistics::{Ended, Outcome};
use reactor::Nanos;

/// Maximum number of points: an hour has 1-s points, a week 256-s points.
pub const POINTS_MAX: usize = 4096;

const FIRST_STEP: Nanos = Nanos(1_000_000_000);

/// Transactions that ended within one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Executed.
    pub done: u64,
    /// Failed after all tries.
    pub failed: u64,
    /// Skipped.
    pub skipped: u64,
    /// Tries beyond the first.
    pub retries: u64,
    /// Sum of the latencies of executed transactions, in ns.
    pub latency_ns_sum: u64,
    /// Maximum of these latencies, in ns.
    pub latency_ns_max: u64,
}

impl Point {
    fn merge(&mut self, other: &Self) {
        self.done += other.done;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.retries += other.retries;
        self.latency_ns_sum += other.latency_ns_sum;
        self.latency_ns_max = self.latency_ns_max.max(other.latency_ns_max);
    }
}

/// Consecutive points from the start of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// Length of each point.
    pub step: Nanos,
    /// At most [`POINTS_MAX`]. Later points are empty.
    pub points: Vec<Point>,
}

impl Default for Series {
    fn default() -> Self {
        Self { step: FIRST_STEP, points: Vec::new() }
    }
}

impl Series {
    /// Adds a transaction that ended at this time of the run.
    pub fn add(&mut self, ended: &Ended, run: Nanos) {
        let point = self.point(run);
        point.retries += u64::from(ended.tries - 1);
        match ended.outcome {
            Outcome::Done => {
                point.done += 1;
                point.latency_ns_sum += ended.latency.0;
                point.latency_ns_max = point.latency_ns_max.max(ended.latency.0);
            }
            Outcome::Skipped => point.skipped += 1,
            Outcome::Serialization | Outcome::Deadlock | Outcome::Other => point.failed += 1,
        }
    }

    fn point(&mut self, run: Nanos) -> &mut Point {
        while run.0 / self.step.0 >= POINTS_MAX as u64 {
            self.double_step();
        }
        let index = (run.0 / self.step.0) as usize;
        if index >= self.points.len() {
            self.points.resize(index + 1, Point::default());
        }
        &mut self.points[index]
    }

    fn double_step(&mut self) {
        for index in 0..self.points.len() {
            let point = std::mem::take(&mut self.points[index]);
            self.points[index / 2].merge(&point);
        }
        self.points.truncate(self.points.len().div_ceil(2));
        self.step = self.step + self.step;
    }

    /// Adds another series of the same run.
    pub fn merge(&mut self, other: &Self) {
        while self.step < other.step {
            self.double_step();
        }
        for (index, point) in (0..).zip(&other.points) {
            self.point(Nanos(index * other.step.0)).merge(point);
        }
    }
}
