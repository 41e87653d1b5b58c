//! Output beyond pgbench's: percentiles, a time series, the complete result as JSON.
//!
//! All of it uses the same latency histograms of completed transactions, measured from their scheduled start.
//! With a rate, latency therefore includes the wait for a free client.

use std::fmt::Write;

use driver::{HIGHEST, Histogram};
use pgbench::script::Script;
use reactor::Nanos;
use serde_json::{Value, json};

use super::bench::{Bench, Results};
use super::options::POSTGRESQL;
use super::record::{CommandRecord, Point, ScriptRecord, Series};
use super::statistics::{Durations, Statistics};

/// Reported quantiles.
const QUANTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999)];

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

/// The complete result as one line of JSON.
pub fn json(bench: &Bench, results: &Results) -> String {
    let total = results.record.total();
    let latency = results.record.latency();
    let scripts = bench.program.scripts.scripts().iter().zip(&results.record.scripts);
    let found = &bench.tables;
    let result = json!({
        "pgdyno": env!("CARGO_PKG_VERSION"),
        "pgbench": POSTGRESQL,
        "server_version": found.server_version,
        "partitions": found.partitions.map(|(method, count)| json!({"method": method, "count": count})),
        "options": run_options(bench),
        "duration_s": results.duration.as_s(),
        "connecting_s": results.connecting_first.as_s(),
        "reconnecting_s": results.connecting_again.as_s(),
        "is_aborted": results.is_aborted,
        "latency_from": if has_schedule(bench) { "scheduled start" } else { "start" },
        "tps": tps(&total, results.duration),
        "transactions": transactions(&total),
        "latency_ms": durations(&total.latency, latency.as_ref()),
        "lag_ms": has_schedule(bench).then(|| durations(&total.lag, None)),
        "scripts": scripts.map(|(script, record)| one_script(script, record, results.duration)).collect::<Value>(),
        "series": results.record.series.as_ref().map(|series| points(series, results.duration)),
        "driver_cpu": {
            "user_s": results.cpu.user.as_s(),
            "system_s": results.cpu.system.as_s(),
            "per_transaction_us": cpu_us_each(results, &total),
        },
    });
    format!("{result}\n")
}

/// Options that determine the load, without passwords.
fn run_options(bench: &Bench) -> Value {
    let options = &bench.options;
    let is_timed = options.time_s > 0;
    json!({
        "dbname": bench.conninfo.dbname,
        "clients": options.clients,
        "jobs": options.jobs,
        "connect": options.connect,
        "transactions_per_client": (!is_timed).then_some(options.transactions),
        "time_s": is_timed.then_some(options.time_s),
        "protocol": options.protocol,
        "define": options.define,
        "rate_per_s": options.rate_per_s,
        "latency_limit_ms": options.latency_limit_ms,
        "scale": bench.tables.scale,
        "max_tries": options.max_tries,
        "continue_on_error": options.continue_on_error,
        "random_seed": bench.seed,
    })
}

fn one_script(script: &Script, record: &ScriptRecord, duration: Nanos) -> Value {
    let statements = script.commands.iter().zip(&record.commands);
    json!({
        "name": script.name,
        "weight": script.weight,
        "tps": tps(&record.statistics, duration),
        "transactions": transactions(&record.statistics),
        "latency_ms": durations(&record.statistics.latency, record.latency.as_ref()),
        "statements": statements.map(|(command, record)| statement(&command.line, record)).collect::<Value>(),
    })
}

fn statement(line: &str, record: &CommandRecord) -> Value {
    let CommandRecord { statistics, latency } = record;
    json!({
        "command": line,
        "failures": statistics.failures,
        "retries": statistics.retries,
        "latency_ms": durations(&statistics.time, latency.as_ref()),
    })
}

fn tps(statistics: &Statistics, duration: Nanos) -> f64 {
    if duration == Nanos::ZERO { 0.0 } else { statistics.done as f64 / duration.as_s() }
}

fn transactions(statistics: &Statistics) -> Value {
    json!({
        "all": statistics.all(),
        "done": statistics.done,
        "late": statistics.late,
        "skipped": statistics.skipped,
        "failed": statistics.failures(),
        "serialization_failures": statistics.serialization_failures,
        "deadlock_failures": statistics.deadlock_failures,
        "other_failures": statistics.other_failures,
        "retried": statistics.retried,
        "retries": statistics.retries,
    })
}

/// Null without any durations.
fn durations(durations: &Durations, histogram: Option<&Histogram>) -> Value {
    if durations.count == 0 {
        return Value::Null;
    }
    let mut fields = json!({
        "n": durations.count,
        "mean": durations.mean_ms(),
        "stddev": durations.deviation_ms(),
        "max": durations.max_ms,
    });
    if let Some(histogram) = histogram {
        for ((name, _), quantile_ms) in QUANTILES.into_iter().zip(quantiles_ms(durations, histogram)) {
            fields[name] = json!(quantile_ms);
        }
        fields["n_above_60_s"] = json!(histogram.saturated());
    }
    fields
}

/// Each point up to the end of the run, with the time that it covers.
fn points(series: &Series, duration: Nanos) -> Value {
    let point = |(index, point): (usize, &Point)| {
        let from = Nanos(index as u64 * series.step.0);
        let covers = series.step.min(duration - from);
        let mean_ms = point.latency_ns_sum as f64 / 1e6 / point.done.max(1) as f64;
        json!({
            "from_s": from.as_s(),
            "duration_s": covers.as_s(),
            "done": point.done,
            "failed": point.failed,
            "skipped": point.skipped,
            "retries": point.retries,
            "latency_mean_ms": (point.done > 0).then_some(mean_ms),
            "latency_max_ms": (point.done > 0).then_some(point.latency_ns_max as f64 / 1e6),
        })
    };
    series.points.iter().enumerate().map(point).collect()
}

/// The section after pgbench's report.
pub fn text(bench: &Bench, results: &Results) -> String {
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
    let _ = write!(out, "{:12}", latency.count());
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

/// The part of a progress line about the rest of the run. `run`: time so far.
pub fn remaining(bench: &Bench, so_far: &Statistics, run: Nanos) -> String {
    let options = &bench.options;
    if options.time_s > 0 {
        return shown(run.as_s(), f64::from(options.time_s), run.as_s());
    }
    let asked = f64::from(options.transactions) * f64::from(options.clients);
    shown(so_far.all() as f64, asked, run.as_s())
}

/// Formats the share of `done` in `all`. The remaining time is estimated at the same rate.
fn shown(done: f64, all: f64, took_s: f64) -> String {
    let share = (done / all).min(1.0);
    let percent = 100.0 * share;
    if share == 0.0 {
        return format!(", {percent:.1}% done");
    }
    let left_s = (took_s / share - took_s).round() as u64;
    let (hours, minutes, seconds) = (left_s / 3600, left_s / 60 % 60, left_s % 60);
    format!(", {percent:.1}% done, about {hours}:{minutes:02}:{seconds:02} left")
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn the_remaining_time_is_estimated_from_the_completed_part() {
        let cases = [
            (0.0, 10.0, 5.0, ", 0.0% done"),
            (250.0, 1000.0, 20.0, ", 25.0% done, about 0:01:00 left"),
            (1000.0, 1000.0, 20.0, ", 100.0% done, about 0:00:00 left"),
            // 10^9 transactions at 1000 per second.
            (3_600_000.0, 1e9, 3600.0, ", 0.4% done, about 276:46:40 left"),
            (61.0, 60.0, 61.0, ", 100.0% done, about 0:00:00 left"),
        ];
        for (done, all, took_s, expected) in cases {
            assert_eq!(shown(done, all, took_s), expected);
        }
    }
}
