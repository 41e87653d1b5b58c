//! HdrHistogram log: a line with a histogram for all transactions, for each script and for each command,
//! identified by tags.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::record::Record;
use driver::record::Histogram;
use pgbench::script::Script;
use reactor::Nanos;

const LEGEND: &str =
    "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"";

/// The log of a run with this end time (Unix) and duration, as a single interval.
pub fn log(record: &Record, scripts: &[Script], ended_unix_s: f64, duration: Nanos) -> String {
    let start_s = ended_unix_s - duration.as_s();
    let mut out = format!(
        "#[pgdyno-pgbench {}: histograms of latencies in ns, Interval_Max in ms]\n",
        env!("CARGO_PKG_VERSION")
    );
    out.push_str("#[Histogram log format version 1.3]\n");
    // Writing to a String cannot fail.
    let _ = writeln!(out, "#[StartTime: {start_s:.3} (seconds since epoch)]");
    let _ = writeln!(out, "#[BaseTime: {start_s:.3} (seconds since epoch)]");
    for (script, number) in scripts.iter().zip(1..) {
        let _ = writeln!(out, "#[Tag script.{number}: {}]", one_line(&script.name));
        for (command, place) in script.commands.iter().zip(1..) {
            let _ = writeln!(out, "#[Tag script.{number}.command.{place}: {}]", one_line(&command.line));
        }
    }
    let _ = writeln!(out, "{LEGEND}");
    let mut line = |tag: &str, latency: Option<&Histogram>| {
        let Some(latency) = latency else { return };
        let (length_s, max_ms) = (duration.as_s(), latency.max_ns() as f64 / 1e6);
        let histogram = STANDARD.encode(latency.encoded_for_log());
        let _ = writeln!(out, "{tag}0.000,{length_s:.3},{max_ms:.3},{histogram}");
    };
    line("", record.latency().as_ref());
    for (script, number) in record.scripts.iter().zip(1..) {
        line(&format!("Tag=script.{number},"), script.latency.as_ref());
        for (command, place) in script.commands.iter().zip(1..) {
            line(&format!("Tag=script.{number}.command.{place},"), command.latency.as_ref());
        }
    }
    out
}

/// Replaces line breaks in a comment.
fn one_line(text: &str) -> String {
    text.split(char::is_control).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}
