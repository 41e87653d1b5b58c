//! What pgbench does not report: percentiles, a series, the whole result as JSON, a histogram for other tools.
//!
//! All of it comes from the same histograms of latencies: of the transactions that were done, each from the instant that
//! it was due on. With a rate that is its scheduled start, so that the wait for a free client counts.

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

/// The quantiles that are reported.
const QUANTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999)];

/// The section that follows pgbench's report.
#[must_use]
pub fn text(bench: &Bench, results: &Results) -> String {
    text::section(bench, results)
}

/// The whole result as one line of JSON.
#[must_use]
pub fn json(bench: &Bench, results: &Results) -> String {
    json::result(bench, results).to_string() + "\n"
}

/// All transactions' latencies as HdrHistogram's tools read them, in ms.
#[must_use]
pub fn hgrm(results: &Results) -> String {
    hgrm::percentiles(&results.record.latency().unwrap_or_default())
}

/// All latencies, those of each script and each command, as HdrHistogram's log.
#[must_use]
pub fn hlog(bench: &Bench, results: &Results, ended_unix_s: f64) -> String {
    hlog::log(&results.record, bench.program.scripts.scripts(), ended_unix_s, results.duration)
}

/// Whether a rate says when each transaction is to begin.
fn has_schedule(bench: &Bench) -> bool {
    bench.throttle_us.is_some()
}

/// The driver's processor time for each transaction that it sent, µs; 0 of none.
fn cpu_us_each(results: &Results, total: &Statistics) -> f64 {
    let sent = total.done + total.failures();
    let cpu = results.cpu.user + results.cpu.system;
    if sent == 0 { 0.0 } else { cpu.0 as f64 / 1e3 / sent as f64 }
}

/// Of durations, by the histogram of them. A histogram may say up to a thousandth more than was measured; the longest
/// is known exactly.
fn quantiles_ms(durations: &Durations, histogram: &Histogram) -> [f64; QUANTILES.len()] {
    QUANTILES.map(|(_, quantile)| (histogram.quantile_ns(quantile) as f64 / 1e6).min(durations.max_ms))
}
