//! Transaction log of `--log`: a file per thread, with pgbench's columns.
//!
//! Lines are written to a preallocated buffer: nothing is allocated per transaction.

pub(crate) mod options;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Write};

use reactor::Nanos;

pub use options::LogOptions;

use super::options::Options;
use super::statistics::{Ended, Outcome, Statistics};
use pgwire::frontend::write_int;

/// Size of the write buffer: one system call for about a thousand transactions.
const BUFFER_BYTES: usize = 64 << 10;

/// Upper bound of the length of a line.
const LINE_BYTES_MAX: usize = 256;

/// Columns of the log, which depend on the options of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // One per option that adds columns.
pub struct Columns {
    /// With `--rate`.
    pub has_lag: bool,
    /// With `--latency-limit`: skipped transactions are counted.
    pub has_limit: bool,
    /// Unless `--max-tries` is 1.
    pub has_retries: bool,
    /// With `--failures-detailed`.
    pub has_failures: bool,
    /// With `--continue-on-error`: aggregates have one more column.
    pub has_other_failures: bool,
}

impl Columns {
    /// Columns for the options of a run.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        Self {
            has_lag: options.rate_per_s.is_some(),
            has_limit: options.latency_limit_ms.is_some(),
            has_retries: options.max_tries != 1,
            has_failures: options.failures_detailed,
            has_other_failures: options.continue_on_error,
        }
    }
}

/// The log of one thread.
pub struct TransactionLog<W: Write = File> {
    out: W,
    columns: Columns,
    /// Unix time of the epoch of the run's clock.
    zero: Nanos,
    buffer: Vec<u8>,
    aggregate: Option<Aggregate>,
    /// The first write error.
    error: Option<io::Error>,
}

impl<W: Write> TransactionLog<W> {
    /// An empty log of a thread whose transactions start at an instant.
    pub fn new(out: W, columns: Columns, zero: Nanos, options: &LogOptions, began: Nanos) -> Self {
        let aggregate = options.aggregate_interval_s.map(|every_s| Aggregate::new(every_s, zero + began));
        Self { out, columns, zero, buffer: Vec::with_capacity(BUFFER_BYTES), aggregate, error: None }
    }

    /// Logs a transaction. `client`: number of the client. `number`: number of its transaction, from 1.
    pub fn add(&mut self, client: u32, number: u64, ended: &Ended) {
        let at = self.zero + ended.at;
        if let Some(aggregate) = &mut self.aggregate {
            let is_to_be_seen = aggregate.close_until(at, self.columns, &mut self.buffer);
            aggregate.add(ended);
            if is_to_be_seen {
                self.write();
            }
            return;
        }
        self.line(client, number, ended, at);
        if self.buffer.len() > BUFFER_BYTES - LINE_BYTES_MAX {
            self.write();
        }
    }

    fn line(&mut self, client: u32, number: u64, ended: &Ended, at: Nanos) {
        let Self { buffer, columns, .. } = self;
        let failed = |kind| if columns.has_failures { kind } else { "failed" };
        let word = match ended.outcome {
            Outcome::Done => None,
            Outcome::Skipped => Some("skipped"),
            Outcome::Serialization => Some(failed("serialization")),
            Outcome::Deadlock => Some(failed("deadlock")),
            Outcome::Other => Some(failed("other")),
        };
        write_int(buffer, i64::from(client));
        column(number, buffer);
        match word {
            None => column(to_us(ended.latency), buffer),
            Some(word) => {
                buffer.push(b' ');
                buffer.extend_from_slice(word.as_bytes());
            }
        }
        let at_us = at.0 / 1000;
        for number in [ended.script as u64, at_us / 1_000_000, at_us % 1_000_000] {
            column(number, buffer);
        }
        if columns.has_lag {
            column(to_us(ended.lag), buffer);
        }
        if columns.has_retries {
            column(u64::from(ended.tries - 1), buffer);
        }
        buffer.push(b'\n');
    }

    fn write(&mut self) {
        if self.error.is_none() {
            self.error = self.out.write_all(&self.buffer).err();
        }
        self.buffer.clear();
    }

    /// Flushes the log at the end of the run. Returns the first error.
    pub fn close(mut self, at: Nanos) -> io::Result<()> {
        if let Some(aggregate) = &mut self.aggregate {
            aggregate.close_until(self.zero + at, self.columns, &mut self.buffer);
        }
        self.write();
        self.error.map_or(Ok(()), Err)
    }
}

/// Appends a space and a number.
fn column(number: u64, out: &mut Vec<u8>) {
    out.push(b' ');
    write_int(out, number as i64);
}

/// Rounds to microseconds.
fn to_us(time: Nanos) -> u64 {
    (time.0 + 500) / 1000
}

/// Durations in µs.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: u64,
    sum: u64,
    /// 2^64 µs² is only an hour.
    squares: u128,
    min: u64,
    max: u64,
}

impl Sums {
    fn add(&mut self, time: Nanos) {
        let time_us = to_us(time);
        self.min = if self.count == 0 { time_us } else { self.min.min(time_us) };
        self.max = self.max.max(time_us);
        self.count += 1;
        self.sum += time_us;
        self.squares += u128::from(time_us).pow(2);
    }
}

/// The current interval.
struct Aggregate {
    every_s: u64,
    /// Unix time.
    from_s: u64,
    counts: Statistics,
    latency: Sums,
    lag: Sums,
}

impl Aggregate {
    /// The first interval of a run that starts at an instant of Unix time. It starts at the full second.
    fn new(every_s: u32, began: Nanos) -> Self {
        Self::of(u64::from(every_s), began.0 / 1_000_000_000)
    }

    fn of(every_s: u64, from_s: u64) -> Self {
        let (latency, lag) = (Sums::default(), Sums::default());
        Self { every_s, from_s, counts: Statistics::default(), latency, lag }
    }

    /// Adds a transaction.
    fn add(&mut self, ended: &Ended) {
        let before = self.counts.done;
        self.counts.add(ended);
        if self.counts.done > before {
            self.latency.add(ended.latency);
            self.lag.add(ended.lag);
        }
    }

    /// Writes the intervals completed at an instant of Unix time, including empty ones. Returns whether there
    /// were any.
    fn close_until(&mut self, at: Nanos, columns: Columns, out: &mut Vec<u8>) -> bool {
        let mut was_over = false;
        while (self.from_s + self.every_s) * 1_000_000_000 <= at.0 {
            self.line(columns, out);
            *self = Self::of(self.every_s, self.from_s + self.every_s);
            was_over = true;
        }
        was_over
    }

    /// Columns of unused options are 0, as in pgbench. Those of `--continue-on-error` are at the end.
    fn line(&self, columns: Columns, out: &mut Vec<u8>) {
        let Self { counts, latency, .. } = self;
        let lag = if columns.has_lag { self.lag } else { Sums::default() };
        let only = |given, count: u64| if given { count } else { 0 };
        let skipped = only(columns.has_limit, counts.skipped);
        let again = [counts.retried, counts.retries].map(|n| only(columns.has_retries, n));
        let [serialization, deadlock, other] =
            [counts.serialization_failures, counts.deadlock_failures, counts.other_failures]
                .map(|n| only(columns.has_failures, n));
        // Writing to a vector cannot fail.
        let _ = write!(out, "{} {}", self.from_s, counts.done);
        for times in [latency, &lag] {
            let _ = write!(out, " {} {} {} {}", times.sum, times.squares, times.min, times.max);
        }
        let _ = write!(out, " {skipped} {} {} {serialization} {deadlock}", again[0], again[1]);
        if columns.has_other_failures {
            let _ = write!(out, " {other}");
        }
        out.push(b'\n');
    }
}
