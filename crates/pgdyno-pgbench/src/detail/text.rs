//! The section with percentiles.

use std::fmt::Write;

use super::{QUANTILES, cpu_us_each, has_schedule, quantiles_ms};
use crate::bench::Bench;
use crate::bench::Results;
use crate::checkpoint::History;
use crate::record::ScriptRecord;
use crate::statistics::{Durations, Statistics};
use driver::record::{HIGHEST, Histogram};

/// See [`super::text`].
pub fn section(bench: &Bench, results: &Results) -> String {
    let total = results.record.total();
    let latency = results.record.latency().unwrap_or_default();
    let from = if has_schedule(bench) {
        "its scheduled start to its end: waiting for a free client counts, nothing is omitted"
    } else {
        "its start to its end, tries that failed included"
    };
    let mut out = format!("pgdyno: latency of transactions done, in ms, lower is better; from {from}\n");
    let _ = write!(out, "{:>12}", "n");
    for (name, _) in QUANTILES {
        let _ = write!(out, " {name:>11}");
    }
    let _ = writeln!(out, " {:>11}", "max");
    row(&mut out, &total.latency, &latency, "all transactions");
    let scripts = bench.program.scripts.scripts();
    for (index, (script, record)) in scripts.iter().zip(&results.record.scripts).enumerate() {
        if scripts.len() > 1 {
            if let Some(latency) = &record.latency {
                let name = format!("SQL script {}: {}", index + 1, script.name);
                row(&mut out, &record.statistics.latency, latency, &name);
            }
        }
        let lines = script.commands.iter().map(|command| command.line.as_str());
        statements(&mut out, record, lines);
    }
    footnotes(&mut out, results, &total, &latency);
    out
}

fn row(out: &mut String, durations: &Durations, latency: &Histogram, name: &str) {
    let _ = write!(out, "{:12}", latency.len());
    for quantile_ms in quantiles_ms(durations, latency) {
        let _ = write!(out, " {quantile_ms:11.3}");
    }
    let _ = writeln!(out, " {:11.3}  {name}", durations.max_ms);
}

/// Each command of a script, from sending to the complete response.
fn statements<'a>(out: &mut String, record: &ScriptRecord, lines: impl Iterator<Item = &'a str>) {
    for (line, command) in lines.zip(&record.commands) {
        if let Some(latency) = &command.latency {
            let shown = line.lines().next().unwrap_or_default();
            row(out, &command.statistics.time, latency, &format!("  {shown}"));
        }
    }
}

fn footnotes(out: &mut String, results: &Results, total: &Statistics, latency: &Histogram) {
    let (failed, skipped) = (total.failures(), total.skipped);
    if failed + skipped > 0 {
        let _ = writeln!(out, "not among them: {failed} failed and {skipped} skipped transactions");
    }
    if latency.saturated() > 0 {
        let (count, highest_s) = (latency.saturated(), HIGHEST.as_s());
        let _ =
            writeln!(out, "{count} latencies above {highest_s} s count as {highest_s} s in the percentiles");
    }
    let (user_s, system_s) = (results.cpu.user.as_s(), results.cpu.system.as_s());
    let each_us = cpu_us_each(results, total);
    let _ = writeln!(
        out,
        "driver's CPU: {each_us:.3} us per transaction sent (user {user_s:.3} s, system {system_s:.3} s)"
    );
}

/// Statistics of a resumed run; empty for others.
#[must_use]
pub fn history(bench: &Bench) -> String {
    let History { resumed, run_again, in_flight_max, is_incomplete } = bench.before.history;
    if resumed == 0 {
        return String::new();
    }
    let times = if resumed == 1 { "once".to_owned() } else { format!("{resumed} times") };
    let at_least = if is_incomplete { "at least " } else { "" };
    format!(
        "pgdyno: resumed {times}; {at_least}{run_again} transactions that had ended after a checkpoint were run again, \
         and up to {in_flight_max} more that were under way\n"
    )
}
