//! Percentile distribution as text, in the format of HdrHistogram's `outputPercentileDistribution` and its
//! plotters.

use std::fmt::Write;

use driver::record::{HIGHEST, Histogram};

/// Number of HdrHistogram's sub-buckets for three significant digits.
const SUB_BUCKETS: u64 = 2048;

/// The distribution in ms.
pub fn percentiles(latency: &Histogram) -> String {
    let ms = |ns: f64| ns / 1e6;
    let mut out =
        format!("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    for (value_ns, quantile, reached) in latency.steps() {
        let value = ms(value_ns as f64);
        // Writing to a String cannot fail.
        let _ = write!(out, "{value:12.3} {quantile:.12} {reached:10}");
        if quantile < 1.0 {
            let _ = write!(out, " {:14.2}", 1.0 / (1.0 - quantile));
        }
        out.push('\n');
    }
    let (mean, deviation) = latency.mean_and_deviation_ns();
    let _ = writeln!(out, "#[Mean    = {:12.3}, StdDeviation   = {:12.3}]", ms(mean), ms(deviation));
    let (max, count) = (ms(latency.max_ns() as f64), latency.len());
    let _ = writeln!(out, "#[Max     = {max:12.3}, Total count    = {count:12}]");
    let buckets = HIGHEST.0.div_ceil(SUB_BUCKETS).next_power_of_two().ilog2() + 1;
    let _ = writeln!(out, "#[Buckets = {buckets:12}, SubBuckets     = {SUB_BUCKETS:12}]");
    out
}
