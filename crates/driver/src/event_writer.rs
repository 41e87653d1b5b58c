//! Events on standard output: `docs/reference/engine-protocol.md`.

use std::io::Write;

use serde::Serialize;
use serde_json::{Value, json};

use crate::record::{Counts, Histogram, Kind};

/// Writer of events, one line each, flushed at once.
pub struct Events<'a>(&'a mut dyn Write);

impl<'a> Events<'a> {
    /// Creates a writer to `out`.
    pub fn new(out: &'a mut dyn Write) -> Self {
        Self(out)
    }

    /// Writes one event. An error means that there is no reader.
    pub fn write(&mut self, event: &str, body: Value) -> std::io::Result<()> {
        #[derive(Serialize)]
        struct Line<'a> {
            event: &'a str,
            #[serde(flatten)]
            body: Value,
        }
        let mut line = serde_json::to_vec(&Line { event, body })?;
        line.push(b'\n');
        self.0.write_all(&line)?;
        self.0.flush()
    }
}

/// Counts by the name of the kind, as JSON.
pub fn by_kind(names: &[&str], counts: &[Counts]) -> Value {
    names.iter().copied().zip(counts).map(|(name, counts)| (name, json!(counts))).collect()
}

/// Counters by name, as JSON: 0 before the first value.
pub fn by_name(names: &[&str], counters: &[u64]) -> Value {
    let values = counters.iter().copied().chain(std::iter::repeat(0));
    names.iter().copied().zip(values).collect()
}

/// Quantiles of an interval, as JSON.
pub fn quantiles(latency: &Histogram) -> Value {
    let [p50, p95, p99] = [0.5, 0.95, 0.99].map(|quantile| latency.quantile_ns(quantile));
    json!({"p50": p50, "p95": p95, "p99": p99, "max": latency.max_ns()})
}

/// The measured part of each kind, as JSON.
pub fn measured(names: &[&str], kinds: &[Kind]) -> Value {
    let kind = |kind: &Kind| {
        json!({
            "counts": kind.counts,
            "failures": kind.failures,
            "histograms": {"latency": kind.latency.bins(), "service": kind.service.bins(), "lag": kind.lag.bins(), "skipped": kind.skipped.bins()},
        })
    };
    names.iter().copied().zip(kinds.iter().map(kind)).collect()
}
