//! Final report and progress lines, in pgbench's format.

use std::fmt::Write;

use super::bench::{Bench, Results};
use super::detail;
use super::statistics::{Durations, Statistics};

/// Appends a line of a report. Writing to a String cannot fail.
macro_rules! line {
    ($out:expr, $($argument:tt)*) => {
        let _ = writeln!($out, $($argument)*);
    };
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

/// The complete report.
pub fn text(bench: &Bench, results: &Results) -> String {
    let total = results.record.total();
    let mut out = String::new();
    parameters(&mut out, bench, &total);
    if total.all() == 0 {
        return out;
    }
    let options = &bench.options;
    failures(&mut out, bench, &total, "");
    if let Some(limit_ms) = options.latency_limit_ms {
        let (late, done) = (total.late, total.done);
        let share = percent(late, done);
        line!(
            out,
            "number of transactions above the {limit_ms:.1} ms latency limit: {late}/{done} ({share:.3}%)"
        );
    }
    let duration_s = results.duration.as_s();
    if bench.throttle_us.is_some() || options.progress_s > 0 || options.latency_limit_ms.is_some() {
        durations(&mut out, "latency", &total.latency);
    } else {
        let average = 1000.0 * duration_s * f64::from(options.clients) / total.all() as f64;
        let note = if total.failures() > 0 { " (including failures)" } else { "" };
        line!(out, "latency average = {average:.3} ms{note}");
    }
    if bench.throttle_us.is_some() {
        let (average, max) = (total.lag.mean_ms(), total.lag.max_ms);
        line!(out, "rate limit schedule lag: avg {average:.3} (max {max:.3}) ms");
    }
    let tps = total.done as f64 / duration_s;
    if options.connect {
        let each = 1000.0 * results.connecting_again.as_s() / (total.done + total.failures()) as f64;
        line!(out, "average connection time = {each:.3} ms");
        line!(out, "tps = {tps:.6} (including reconnection times)");
    } else {
        line!(out, "initial connection time = {:.3} ms", 1000.0 * results.connecting_first.as_s());
        line!(out, "tps = {tps:.6} (without initial connection time)");
    }
    scripts(&mut out, bench, results, &total);
    out
}

fn parameters(out: &mut String, bench: &Bench, total: &Statistics) {
    let (options, tables) = (&bench.options, &bench.tables);
    let kind = match bench.program.scripts.scripts() {
        [only] => only.name.as_str(),
        _ => "multiple scripts",
    };
    line!(out, "transaction type: {kind}");
    line!(out, "scaling factor: {}", tables.scale);
    if let Some((method, count)) = tables.partitions {
        line!(out, "partition method: {method}\npartitions: {count}");
    }
    line!(out, "query mode: {}", options.protocol);
    line!(out, "number of clients: {}\nnumber of threads: {}", options.clients, options.jobs);
    if options.max_tries > 0 {
        line!(out, "maximum number of tries: {}", options.max_tries);
    }
    let done = total.done;
    if options.time_s > 0 {
        line!(out, "duration: {} s", options.time_s);
        line!(out, "number of transactions actually processed: {done}");
    } else {
        let each = options.transactions;
        let asked = u64::from(each) * u64::from(options.clients);
        line!(out, "number of transactions per client: {each}");
        line!(out, "number of transactions actually processed: {done}/{asked}");
    }
}

/// Failed, retried and skipped transactions.
fn failures(out: &mut String, bench: &Bench, statistics: &Statistics, indent: &str) {
    let options = &bench.options;
    let all = statistics.all();
    let mut count = |name: &str, count: u64| {
        line!(out, "{indent}number of {name}: {count} ({:.3}%)", percent(count, all));
    };
    count("failed transactions", statistics.failures());
    if options.failures_detailed {
        count("serialization failures", statistics.serialization_failures);
        count("deadlock failures", statistics.deadlock_failures);
        if options.continue_on_error {
            count("other failures", statistics.other_failures);
        }
    }
    if options.max_tries != 1 {
        count("transactions retried", statistics.retried);
        line!(out, "{indent}total number of retries: {}", statistics.retries);
    }
    if bench.throttle_us.is_some() && bench.latency_limit.is_some() {
        let share = percent(statistics.skipped, all);
        line!(out, "{indent}number of transactions skipped: {} ({share:.3}%)", statistics.skipped);
    }
}

fn durations(out: &mut String, what: &str, durations: &Durations) {
    if durations.count > 0 {
        line!(out, "{what} average = {:.3} ms", durations.mean_ms());
        line!(out, "{what} stddev = {:.3} ms", durations.deviation_ms());
    }
}

fn scripts(out: &mut String, bench: &Bench, results: &Results, total: &Statistics) {
    let scripts = bench.program.scripts.scripts();
    let has_several = scripts.len() > 1;
    let weights: u64 = scripts.iter().map(|script| u64::from(script.weight)).sum();
    for (index, script) in scripts.iter().enumerate() {
        let record = &results.record.scripts[index];
        let statistics = &record.statistics;
        if has_several {
            let (name, weight, all) = (&script.name, script.weight, statistics.all());
            let target = percent(u64::from(weight), weights);
            line!(
                out,
                "SQL script {}: {name}\n - weight: {weight} (targets {target:.1}% of total)",
                index + 1
            );
            line!(out, " - {all} transactions ({:.1}% of total)", percent(all, total.all()));
            if all > 0 {
                let tps = statistics.done as f64 / results.duration.as_s();
                let done = statistics.done;
                line!(out, " - number of transactions actually processed: {done} (tps = {tps:.6})");
                failures(out, bench, statistics, " - ");
            }
            durations(out, " - latency", &statistics.latency);
        }
        if bench.options.report_per_command {
            let is_tried_once = bench.options.max_tries == 1;
            let indent = if has_several { " - " } else { "" };
            let columns = if is_tried_once { " and failures" } else { ", failures and retries" };
            line!(out, "{indent}statement latencies in milliseconds{columns}:");
            for (command, counted) in script.commands.iter().zip(&record.commands) {
                let counted = &counted.statistics;
                let (mean, failures, retries) = (counted.time.mean_ms(), counted.failures, counted.retries);
                let shown = &command.line;
                if is_tried_once {
                    line!(out, "   {mean:11.3}  {failures:10} {shown}");
                } else {
                    line!(out, "   {mean:11.3}  {failures:10} {retries:10} {shown}");
                }
            }
        }
    }
}

/// State at the last progress line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    last: Statistics,
    last_s: f64,
}

impl Progress {
    /// The line for the time since the last one.
    pub fn line(&mut self, bench: &Bench, now: Statistics, run: reactor::Nanos, unix_s: f64) -> String {
        let run_s = run.as_s();
        let latency = now.latency.since(&self.last.latency);
        let tps = (now.done - self.last.done) as f64 / (run_s - self.last_s);
        let failed = now.failures() - self.last.failures();
        let at =
            if bench.options.progress_timestamp { format!("{unix_s:.3}") } else { format!("{run_s:.1}") };
        let (mean, deviation) = (latency.mean_ms(), latency.deviation_ms());
        let mut line = format!(
            "progress: {at} s, {tps:.1} tps, lat {mean:.3} ms stddev {deviation:.3}, {failed} failed"
        );
        if bench.throttle_us.is_some() {
            let _ = write!(line, ", lag {:.3} ms", now.lag.since(&self.last.lag).mean_ms());
            if bench.latency_limit.is_some() {
                let _ = write!(line, ", {} skipped", now.skipped - self.last.skipped);
            }
        }
        if bench.options.max_tries != 1 {
            let again = now.retries - self.last.retries;
            let _ = write!(line, ", {} retried, {again} retries", now.retried - self.last.retried);
        }
        if bench.options.detail.is_text {
            line.push_str(&detail::remaining(bench, &now, run));
        }
        (self.last, self.last_s) = (now, run_s);
        line.push('\n');
        line
    }
}
