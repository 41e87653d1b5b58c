//! The complete result as JSON. docs/reference/pgbench.md describes its fields.

use serde_json::{Map, Value, json};

use super::{QUANTILES, cpu_us_each, has_schedule, quantiles_ms};
use crate::bench::Bench;
use crate::bench::Results;
use crate::options::POSTGRESQL;
use crate::record::{CommandRecord, Point, ScriptRecord, Series};
use crate::run_config;
use crate::statistics::{Durations, Statistics};
use driver::record::Histogram;
use pgbench::script::Script;
use reactor::Nanos;

/// See [`super::json`].
pub fn result(bench: &Bench, results: &Results) -> Value {
    let total = results.record.total();
    let latency = results.record.latency();
    let scripts = bench.program.scripts.scripts().iter().zip(&results.record.scripts);
    let found = &bench.tables;
    json!({
        "pgdyno": env!("CARGO_PKG_VERSION"),
        "pgbench": POSTGRESQL,
        "server_version": found.server_version,
        "partitions": found.partitions.map(|(method, count)| json!({"method": method, "count": count})),
        "options": run_config::options(bench),
        "duration_s": results.duration.as_s(),
        "connecting_s": results.connecting_first.as_s(),
        "reconnecting_s": results.connecting_again.as_s(),
        "is_aborted": results.is_aborted,
        "history": bench.before.history,
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
    let mut fields = Map::new();
    fields.insert("n".to_owned(), json!(durations.count));
    fields.insert("mean".to_owned(), json!(durations.mean_ms()));
    fields.insert("stddev".to_owned(), json!(durations.deviation_ms()));
    if let Some(histogram) = histogram {
        for ((name, _), quantile_ms) in QUANTILES.into_iter().zip(quantiles_ms(durations, histogram)) {
            fields.insert(name.to_owned(), json!(quantile_ms));
        }
        fields.insert("n_above_60_s".to_owned(), json!(histogram.saturated()));
    }
    fields.insert("max".to_owned(), json!(durations.max_ms));
    Value::Object(fields)
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
