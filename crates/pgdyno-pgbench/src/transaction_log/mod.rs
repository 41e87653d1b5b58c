//! Transaction log of `--log`: a file per thread, with pgbench's columns.
//!
//! Lines are written to a preallocated buffer: nothing is allocated per transaction.

mod aggregate;
mod options;

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Write};

use aggregate::Aggregate;
pub use options::LogOptions;

use super::options::Options;
use super::statistics::{Ended, Outcome};
use pgbench::value::number::write_int;
use reactor::Nanos;

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
        write_int(i64::from(client), buffer);
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
    write_int(number as i64, out);
}

/// Rounds to microseconds.
fn to_us(time: Nanos) -> u64 {
    (time.0 + 500) / 1000
}
