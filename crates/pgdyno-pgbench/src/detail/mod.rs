//! Output beyond pgbench's: percentiles, a time series, the complete result as JSON, histograms for other
//! tools.
//!
//! All of it uses the same latency histograms of completed transactions, measured from their scheduled start.
//! With a rate, latency therefore includes the wait for a free client.

mod hgrm;
mod hlog;
mod json;
mod options;
mod progress;
mod text;

#[cfg(test)]
mod tests;

use super::bench::Bench;
use super::bench::Results;
use super::statistics::{Durations, Statistics};
use driver::record::Histogram;

pub use options::DetailOptions;
pub use progress::remaining;
pub use text::history;

/// Reported quantiles.
const QUANTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999)];

/// The section after pgbench's report.
#[must_use]
pub fn text(bench: &Bench, results: &Results) -> String {
    text::section(bench, results)
}

/// The complete result as one line of JSON.
#[must_use]
pub fn json(bench: &Bench, results: &Results) -> String {
    json::result(bench, results).to_string() + "\n"
}

/// Latencies of all transactions in ms, in the format of HdrHistogram's tools.
#[must_use]
pub fn hgrm(results: &Results) -> String {
    hgrm::percentiles(&results.record.latency().unwrap_or_default())
}

/// All latencies, including those of scripts and commands, as a HdrHistogram log.
#[must_use]
pub fn hlog(bench: &Bench, results: &Results, ended_unix_s: f64) -> String {
    hlog::log(&results.record, bench.program.scripts.scripts(), ended_unix_s, results.duration)
}

/// Whether transactions are scheduled by a rate.
fn has_schedule(bench: &Bench) -> bool {
    bench.throttle_us.is_some()
}

/// CPU time of the driver per sent transaction, in µs; 0 without transactions.
fn cpu_us_each(results: &Results, total: &Statistics) -> f64 {
    let sent = total.done + total.failures();
    let cpu = results.cpu.user + results.cpu.system;
    if sent == 0 { 0.0 } else { cpu.0 as f64 / 1e3 / sent as f64 }
}

/// Quantiles of durations from their histogram.
///
/// A histogram may exceed the measured value by 0.1%. The maximum is exact.
fn quantiles_ms(durations: &Durations, histogram: &Histogram) -> [f64; QUANTILES.len()] {
    QUANTILES.map(|(_, quantile)| (histogram.quantile_ns(quantile) as f64 / 1e6).min(durations.max_ms))
}
