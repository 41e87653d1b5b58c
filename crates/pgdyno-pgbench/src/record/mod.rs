//! Record of the transactions of a thread. Its size does not depend on their number.
//!
//! Counters are always recorded; histograms and the time series only for [`super::detail`].

#[cfg(test)]
mod tests;

use std::sync::{Mutex, MutexGuard, PoisonError};

use driver::Histogram;
use pgbench::script::Scripts;
use reactor::Nanos;

use super::statistics::{CommandStatistics, Ended, Outcome, Statistics};

/// Record of one command of a script.
#[derive(Clone, Default)]
pub struct CommandRecord {
    /// Statistics of pgbench's report.
    pub statistics: CommandStatistics,
    /// Duration, if recorded.
    pub latency: Option<Histogram>,
}

/// Record of one script.
#[derive(Clone, Default)]
pub struct ScriptRecord {
    /// Statistics of pgbench's report.
    pub statistics: Statistics,
    /// Latency of executed transactions, if recorded.
    pub latency: Option<Histogram>,
    /// By command.
    pub commands: Vec<CommandRecord>,
}

/// Record of all scripts.
#[derive(Clone, Default)]
pub struct Record {
    /// By script.
    pub scripts: Vec<ScriptRecord>,
    /// Time series of all transactions, if recorded.
    pub series: Option<Series>,
}

impl Record {
    /// An empty record of these scripts.
    pub fn new(scripts: &Scripts, is_detailed: bool) -> Self {
        let latency = || is_detailed.then(Histogram::default);
        let command = || CommandRecord { statistics: CommandStatistics::default(), latency: latency() };
        let script = |commands| ScriptRecord {
            statistics: Statistics::default(),
            latency: latency(),
            commands: (0..commands).map(|_| command()).collect(),
        };
        Self {
            scripts: scripts.scripts().iter().map(|one| script(one.commands.len())).collect(),
            series: is_detailed.then(Series::default),
        }
    }

    /// Records a transaction that ended at this time of the run.
    pub fn add(&mut self, ended: &Ended, run: Nanos) {
        let script = &mut self.scripts[ended.script];
        script.statistics.add(ended);
        if let (Some(latency), true) = (&mut script.latency, ended.is_done()) {
            latency.record(ended.latency);
        }
        if let Some(series) = &mut self.series {
            series.add(ended, run);
        }
    }

    /// Records an executed command.
    pub fn add_command(&mut self, script: usize, command: usize, took: Nanos) {
        let command = &mut self.scripts[script].commands[command];
        command.statistics.time.add(took);
        if let Some(latency) = &mut command.latency {
            latency.record(took);
        }
    }

    /// Records a failed command, and whether its transaction is retried.
    pub fn add_failure(&mut self, script: usize, command: usize, again: bool) {
        let statistics = &mut self.scripts[script].commands[command].statistics;
        *(if again { &mut statistics.retries } else { &mut statistics.failures }) += 1;
    }

    /// Number of retries, counted when they begin. That of [`Record::total`] counts them when the transaction ends.
    pub fn retries(&self) -> u64 {
        let commands = self.scripts.iter().flat_map(|script| &script.commands);
        commands.map(|command| command.statistics.retries).sum()
    }

    /// Adds the record of another thread with the same scripts.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.scripts.iter_mut().zip(&other.scripts) {
            mine.statistics.merge(&theirs.statistics);
            merge_histograms(&mut mine.latency, theirs.latency.as_ref());
            for (mine, theirs) in mine.commands.iter_mut().zip(&theirs.commands) {
                mine.statistics.merge(&theirs.statistics);
                merge_histograms(&mut mine.latency, theirs.latency.as_ref());
            }
        }
        if let (Some(mine), Some(theirs)) = (&mut self.series, &other.series) {
            mine.merge(theirs);
        }
    }

    /// Statistics of all scripts together.
    pub fn total(&self) -> Statistics {
        let mut total = Statistics::default();
        for script in &self.scripts {
            total.merge(&script.statistics);
        }
        total
    }

    /// Latencies of all scripts together, if recorded.
    pub fn latency(&self) -> Option<Histogram> {
        let mut total: Option<Histogram> = None;
        for latency in self.scripts.iter().filter_map(|script| script.latency.as_ref()) {
            total.get_or_insert_default().merge(latency);
        }
        total
    }
}

fn merge_histograms(mine: &mut Option<Histogram>, theirs: Option<&Histogram>) {
    if let (Some(mine), Some(theirs)) = (mine, theirs) {
        mine.merge(theirs);
    }
}

/// Locks a thread's record. After a panic the record is still consistent.
pub fn lock(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Maximum number of points: an hour has 1-s points, a week 256-s points.
pub const POINTS_MAX: usize = 4096;

const FIRST_STEP: Nanos = Nanos(1_000_000_000);

/// Transactions that ended within one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
