//! Record of the transactions of a thread. Its size does not depend on their number.
//!
//! Counters are always recorded; histograms and the time series only for [`super::detail`].

mod series;

#[cfg(test)]
mod tests;

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

pub use series::{POINTS_MAX, Point, Series};

use super::statistics::{CommandStatistics, Ended, Statistics};
use driver::record::Histogram;
use pgbench::script::Scripts;
use reactor::Nanos;

/// Record of one command of a script.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct CommandRecord {
    /// Statistics of pgbench's report.
    pub statistics: CommandStatistics,
    /// Duration, if recorded.
    pub latency: Option<Histogram>,
}

/// Record of one script.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct ScriptRecord {
    /// Statistics of pgbench's report.
    pub statistics: Statistics,
    /// Latency of executed transactions, if recorded.
    pub latency: Option<Histogram>,
    /// By command.
    pub commands: Vec<CommandRecord>,
}

/// Record of all scripts.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Record {
    /// By script.
    pub scripts: Vec<ScriptRecord>,
    /// Time series of all transactions, if recorded.
    pub series: Option<Series>,
}

impl Record {
    /// An empty record of these scripts.
    #[must_use]
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
    #[must_use]
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
    #[must_use]
    pub fn total(&self) -> Statistics {
        let mut total = Statistics::default();
        for script in &self.scripts {
            total.merge(&script.statistics);
        }
        total
    }

    /// Latencies of all scripts together, if recorded.
    #[must_use]
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
