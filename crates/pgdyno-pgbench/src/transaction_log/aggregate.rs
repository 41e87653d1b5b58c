//! Aggregated log: `--aggregate-interval`.

use std::io::Write;

use super::{Columns, to_us};
use crate::statistics::{Ended, Statistics};
use reactor::Nanos;

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
pub struct Aggregate {
    every_s: u64,
    /// Unix time.
    from_s: u64,
    counts: Statistics,
    latency: Sums,
    lag: Sums,
}

impl Aggregate {
    /// The first interval of a run that starts at an instant of Unix time. It starts at the full second.
    pub fn new(every_s: u32, began: Nanos) -> Self {
        Self::of(u64::from(every_s), began.0 / 1_000_000_000)
    }

    fn of(every_s: u64, from_s: u64) -> Self {
        let (latency, lag) = (Sums::default(), Sums::default());
        Self { every_s, from_s, counts: Statistics::default(), latency, lag }
    }

    /// Adds a transaction.
    pub fn add(&mut self, ended: &Ended) {
        let before = self.counts.done;
        self.counts.add(ended);
        if self.counts.done > before {
            self.latency.add(ended.latency);
            self.lag.add(ended.lag);
        }
    }

    /// Writes the intervals completed at an instant of Unix time, including empty ones. Returns whether there
    /// were any.
    pub fn close_until(&mut self, at: Nanos, columns: Columns, out: &mut Vec<u8>) -> bool {
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
