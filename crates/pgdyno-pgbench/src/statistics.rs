//! Counts and durations in pgbench's report.

use reactor::Nanos;

/// Durations in ms: count, sum, and sum of squares.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Durations {
    /// Count.
    pub count: u64,
    /// Maximum in ms.
    pub max_ms: f64,
    sum_ms: f64,
    squares: f64,
}

impl Durations {
    /// Adds a duration.
    pub fn add(&mut self, time: Nanos) {
        let time_ms = time.0 as f64 / 1e6;
        self.count += 1;
        self.max_ms = self.max_ms.max(time_ms);
        self.sum_ms += time_ms;
        self.squares += time_ms * time_ms;
    }

    /// Adds other durations.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.max_ms = self.max_ms.max(other.max_ms);
        self.sum_ms += other.sum_ms;
        self.squares += other.squares;
    }

    /// Difference from `earlier`, a former state.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            count: self.count - earlier.count,
            max_ms: self.max_ms,
            sum_ms: self.sum_ms - earlier.sum_ms,
            squares: self.squares - earlier.squares,
        }
    }

    /// Mean in ms; 0 without durations.
    #[must_use]
    pub fn mean_ms(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_ms / self.count as f64 }
    }

    /// Standard deviation in ms; 0 without durations.
    #[must_use]
    pub fn deviation_ms(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let mean = self.mean_ms();
        (self.squares / self.count as f64 - mean * mean).max(0.0).sqrt()
    }
}

/// Outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Self-explanatory.
pub enum Outcome {
    Done,
    /// Too late to start.
    Skipped,
    Serialization,
    Deadlock,
    Other,
}

/// A completed transaction.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Index of its script.
    pub script: usize,
    /// Outcome.
    pub outcome: Outcome,
    /// Number of tries, at least one.
    pub tries: u32,
    /// Latency from its scheduled start, if it was executed.
    pub latency: Nanos,
    /// Delay of its start, if it was executed.
    pub lag: Nanos,
    /// Whether its latency exceeds the limit.
    pub is_late: bool,
    /// End time.
    pub at: Nanos,
}

impl Ended {
    /// Whether it was executed.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.outcome == Outcome::Done
    }
}

/// Statistics of one script.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs)] // Named as in pgbench.
pub struct Statistics {
    pub done: u64,
    pub skipped: u64,
    pub serialization_failures: u64,
    pub deadlock_failures: u64,
    pub other_failures: u64,
    pub retried: u64,
    pub retries: u64,
    /// Executed transactions that exceed the latency limit.
    pub late: u64,
    pub latency: Durations,
    pub lag: Durations,
}

impl Statistics {
    /// Adds a transaction.
    pub fn add(&mut self, ended: &Ended) {
        if ended.tries > 1 {
            self.retried += 1;
            self.retries += u64::from(ended.tries - 1);
        }
        match ended.outcome {
            Outcome::Done => {
                self.done += 1;
                self.late += u64::from(ended.is_late);
                self.latency.add(ended.latency);
                self.lag.add(ended.lag);
            }
            Outcome::Skipped => self.skipped += 1,
            Outcome::Serialization => self.serialization_failures += 1,
            Outcome::Deadlock => self.deadlock_failures += 1,
            Outcome::Other => self.other_failures += 1,
        }
    }

    /// Adds other statistics.
    pub fn merge(&mut self, other: &Self) {
        self.done += other.done;
        self.skipped += other.skipped;
        self.serialization_failures += other.serialization_failures;
        self.deadlock_failures += other.deadlock_failures;
        self.other_failures += other.other_failures;
        self.retried += other.retried;
        self.retries += other.retries;
        self.late += other.late;
        self.latency.merge(&other.latency);
        self.lag.merge(&other.lag);
    }

    /// Number of failures.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.serialization_failures + self.deadlock_failures + self.other_failures
    }

    /// Number of transactions.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.done + self.skipped + self.failures()
    }
}

/// Statistics of one command of a script.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs)] // As for Statistics.
pub struct CommandStatistics {
    pub time: Durations,
    pub failures: u64,
    pub retries: u64,
}

impl CommandStatistics {
    /// Adds other statistics.
    pub fn merge(&mut self, other: &Self) {
        self.time.merge(&other.time);
        self.failures += other.failures;
        self.retries += other.retries;
    }
}
