//! What is printed of a run: its options, intermediate reports, the final report.

use std::fmt::Write;

use mlua::Table;
use reactor::Nanos;
use sysbench::ScriptClient;

use super::arguments::{RunOptions, seconds};
use super::bench::Bench;
use super::messages::failed;
use super::record::{Interval, Record};

/// What is printed before the clients are initialized.
pub fn preamble(options: &RunOptions) -> String {
    let mut text = "Running the test with following options:\n".to_owned();
    let _ = writeln!(text, "Number of threads: {}", options.clients);
    if options.warmup_s > 0 {
        let _ = writeln!(text, "Warmup time: {}s", options.warmup_s);
    }
    if let Some(rate) = options.rate_per_s {
        let _ = writeln!(text, "Target transaction rate: {rate}/sec");
    }
    if let Some(interval_s) = options.report_interval_s {
        let _ = writeln!(text, "Report intermediate results every {interval_s} second(s)");
    }
    if !options.checkpoints_s.is_empty() {
        let times: Vec<_> = options.checkpoints_s.iter().map(u64::to_string).collect();
        let _ = writeln!(text, "Report checkpoint(s) at {} seconds", times.join(", "));
    }
    if options.is_debug {
        text.push_str("Debug mode enabled.\n\n");
    }
    if options.is_validated {
        text.push_str("Validation checks: on.\n\n");
    }
    let _ = match options.seed {
        Some(seed) => writeln!(text, "Initializing random number generator from seed ({seed}).\n\n"),
        None => writeln!(text, "Initializing random number generator from current time\n\n"),
    };
    text
}

/// How long before it is due the last intermediate report may be printed.
const LAST_EARLY_MAX: Nanos = Nanos(100_000_000);

/// Prints reports when they are due.
pub struct Reporter<'a> {
    bench: &'a Bench,
    start: Nanos,
    /// When the last intermediate report was, and when the last checkpoint.
    reported: Nanos,
    checkpoint: Nanos,
    next_report: Nanos,
    /// The checkpoints that are to come, the last one first.
    checkpoints: Vec<Nanos>,
}

/// Statistics of a stretch of time, as hooks of scripts get them.
struct Stretch<'a> {
    interval: &'a Interval,
    /// Since the start.
    total_s: f64,
    /// Of the stretch.
    interval_s: f64,
    clients: u64,
    percentile: u32,
    /// Arrivals that wait, and clients that run an event.
    queue: Option<(usize, u64)>,
    is_cumulative: bool,
}

impl<'a> Reporter<'a> {
    /// Reports of a run that began at `start`.
    pub fn new(bench: &'a Bench, start: Nanos) -> Self {
        let start = start + seconds(bench.options.warmup_s);
        let every = bench.options.report_interval_s;
        let mut checkpoints: Vec<_> =
            bench.options.checkpoints_s.iter().map(|s| start + seconds(*s)).collect();
        checkpoints.sort_unstable_by(|a, b| b.cmp(a));
        let next_report = every.map_or(Nanos::MAX, |s| start + seconds(s));
        Self { bench, start, reported: start, checkpoint: start, next_report, checkpoints }
    }

    /// When the next report is due.
    pub fn due(&self) -> Nanos {
        self.next_report.min(self.checkpoints.last().copied().unwrap_or(Nanos::MAX))
    }

    /// Prints what is due.
    pub fn report(&mut self, main: &mut ScriptClient) {
        let now = self.bench.now();
        if now >= self.next_report {
            self.report_interval(main);
        }
        if self.checkpoints.last().is_some_and(|at| now >= *at) {
            self.checkpoints.pop();
            let record = self.bench.take_record(true);
            let stretch = self.stretch(&record.total, self.checkpoint, now, true);
            let at = stretch.total_s;
            self.checkpoint = now;
            self.show(main, "report_cumulative", &stretch, || {
                format!("[ {at:.0}s ] Checkpoint report:\n{}", self.cumulative(&record, &stretch))
            });
        }
    }

    fn report_interval(&mut self, main: &mut ScriptClient) {
        let now = self.bench.now();
        self.next_report = self.next_report + seconds(self.bench.options.report_interval_s.unwrap_or(1));
        let record = self.bench.take_record(false);
        let stretch = self.stretch(&record.recent, self.reported, now, false);
        self.reported = now;
        self.show(main, "report_intermediate", &stretch, || self.intermediate(&stretch));
    }

    /// Prints the final report.
    pub fn last(&mut self, main: &mut ScriptClient) {
        // The clients end at the instant of the last intermediate report.
        if self.bench.now() + LAST_EARLY_MAX >= self.next_report {
            self.report_interval(main);
        }
        let now = self.bench.now();
        let record = self.bench.take_record(true);
        if self.bench.options.has_histogram {
            let histogram = record.total.latencies.text();
            self.bench.message(&format!("Latency histogram (values are in milliseconds)\n{histogram} \n"));
        }
        let stretch = self.stretch(&record.total, self.checkpoint, now, true);
        main.state().end_reports();
        self.show(main, "report_cumulative", &stretch, || self.cumulative(&record, &stretch));
        main.state().end_reports();
    }

    fn stretch<'b>(
        &self,
        interval: &'b Interval,
        from: Nanos,
        now: Nanos,
        is_cumulative: bool,
    ) -> Stretch<'b> {
        let options = &self.bench.options;
        Stretch {
            interval,
            total_s: (now - self.start).as_s(),
            interval_s: (now - from).as_s().max(1e-9),
            clients: self.bench.running_clients(),
            percentile: options.percentile.unwrap_or(0),
            queue: self.bench.queue(),
            is_cumulative,
        }
    }

    /// Prints a report: the script's hook does, if there is one.
    fn show(&self, main: &mut ScriptClient, hook: &str, stretch: &Stretch<'_>, text: impl Fn() -> String) {
        match main.state().hook(hook) {
            None => self.bench.message(&text()),
            Some(function) => {
                let called = stretch.table(main).and_then(|table| function.call::<()>(table));
                called.unwrap_or_else(|error| failed(hook, &error.into()));
            }
        }
    }

    fn intermediate(&self, stretch: &Stretch<'_>) -> String {
        let Stretch { interval, total_s, interval_s, clients, .. } = stretch;
        let percentile = interval.latencies.percentile(f64::from(stretch.percentile));
        let per_s = |n: u64| n as f64 / interval_s;
        let counts = &interval.counts;
        let mut text = if self.bench.uses_sql() {
            format!(
                "[ {total_s:.0}s ] thds: {clients} tps: {:.2} qps: {:.2} (r/w/o: {:.2}/{:.2}/{:.2}) lat (ms,{}%): {percentile:.2} err/s: {:.2} reconn/s: {:.2}\n",
                per_s(interval.events),
                per_s(counts.reads + counts.writes + counts.others),
                per_s(counts.reads),
                per_s(counts.writes),
                per_s(counts.others),
                stretch.percentile,
                per_s(counts.errors()),
                per_s(counts.reconnects),
            )
        } else {
            let eps = per_s(interval.events);
            format!(
                "[ {total_s:.0}s ] thds: {clients} eps: {eps:.2} lat (ms,{}%): {percentile:.2}\n",
                stretch.percentile
            )
        };
        if let Some((queue, running)) = stretch.queue {
            let comma = if self.bench.uses_sql() { "," } else { "" };
            let _ = writeln!(text, "[ {total_s:.0}s ] queue length: {queue}{comma} concurrency: {running}");
        }
        text
    }

    fn cumulative(&self, record: &Record, stretch: &Stretch<'_>) -> String {
        let Stretch { interval, interval_s, .. } = stretch;
        let mut text = String::new();
        let counts = &interval.counts;
        let queries = counts.reads + counts.writes + counts.others;
        if self.bench.uses_sql() {
            text += "SQL statistics:\n    queries performed:\n";
            let kinds = [
                ("read:", counts.reads),
                ("write:", counts.writes),
                ("other:", counts.others),
                ("total:", queries),
            ];
            for (name, n) in kinds {
                let _ = writeln!(text, "        {name:<33}{n}");
            }
            let rates = [
                ("transactions:", interval.events),
                ("queries:", queries),
                ("ignored errors:", counts.errors()),
                ("reconnects:", counts.reconnects),
            ];
            for (name, n) in rates {
                let _ = writeln!(text, "    {name:<37}{n:<6} ({:.2} per sec.)", n as f64 / interval_s);
            }
        }
        text += "\nGeneral statistics:\n";
        let _ = writeln!(text, "    {:<37}{:.4}s", "total time:", stretch.total_s);
        let _ = writeln!(text, "    {:<37}{}\n", "total number of events:", interval.events);
        text += &latency(interval, stretch.percentile);
        text + &fairness(&record.clients)
    }
}

fn latency(interval: &Interval, percentile: u32) -> String {
    let ms = |time: Nanos| time.0 as f64 / 1e6;
    let line = |name: &str, value: f64| format!("         {name:<31} {value:>12.2}\n");
    let percentiles = if percentile > 0 {
        let value = interval.latencies.percentile(f64::from(percentile));
        format!("        {percentile:3}th percentile: {value:27.2}\n")
    } else {
        "         percentile stats:               disabled\n".to_owned()
    };
    let avg = line("avg:", ms(interval.sum) / interval.events.max(1) as f64);
    let (min, max, sum) = (ms(interval.min()), ms(interval.max), ms(interval.sum));
    let [min, max, sum] =
        [("min:", min), ("max:", max), ("sum:", sum)].map(|(name, value)| line(name, value));
    ["Latency (ms):\n", &min, &avg, &max, &percentiles, &sum].concat()
}

/// How evenly events and time are spread over the clients: average and standard deviation.
fn fairness(clients: &[(u64, Nanos)]) -> String {
    let spread = |values: &[f64]| {
        let n = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n;
        (mean, variance.sqrt())
    };
    let (events, events_sd) = spread(&clients.iter().map(|(n, _)| *n as f64).collect::<Vec<_>>());
    let (time, time_sd) = spread(&clients.iter().map(|(_, time)| time.as_s()).collect::<Vec<_>>());
    format!(
        "\nThreads fairness:\n    events (avg/stddev):           {events:.4}/{events_sd:.2}\n    execution time (avg/stddev):   {time:.4}/{time_sd:.2}\n\n"
    )
}

impl Stretch<'_> {
    /// The statistics as a hook of a script gets them.
    fn table(&self, main: &ScriptClient) -> mlua::Result<Table> {
        let (interval, counts) = (self.interval, &self.interval.counts);
        let running = if self.is_cumulative { 0 } else { self.clients };
        let mut fields = vec![
            ("threads_running", running as f64),
            ("time_total", self.total_s),
            ("time_interval", self.interval_s),
            ("events", interval.events as f64),
            ("reads", counts.reads as f64),
            ("writes", counts.writes as f64),
            ("other", counts.others as f64),
            ("errors", counts.errors() as f64),
            ("reconnects", counts.reconnects as f64),
            ("latency_pct", interval.latencies.percentile(f64::from(self.percentile)) / 1e3),
        ];
        if self.is_cumulative {
            fields.extend([
                ("latency_min", interval.min().as_s()),
                ("latency_max", interval.max.as_s()),
                ("latency_avg", interval.sum.as_s() / interval.events.max(1) as f64),
                ("latency_sum", interval.sum.as_s()),
            ]);
        } else {
            let (waiting, busy) = self.queue.unwrap_or_default();
            fields.extend([("queue_length", waiting as f64), ("concurrency", busy as f64)]);
        }
        main.state().lua().create_table_from(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_aligned_as_in_sysbench() {
        let expected = "Latency (ms):\n         min:                                    0.00\n         avg:                                    0.00\n         max:                                    0.00\n         95th percentile:                        0.00\n         sum:                                    0.00\n";
        assert_eq!(latency(&Interval::default(), 95), expected);
        let text = latency(&Interval::default(), 0);
        assert!(text.contains("\n         percentile stats:               disabled\n"), "{text}");
    }

    #[test]
    fn fairness_is_an_average_and_a_standard_deviation() {
        let clients = [(3, Nanos(0)), (0, Nanos(2_000_000_000))];
        let expected = "\nThreads fairness:\n    events (avg/stddev):           1.5000/1.50\n    execution time (avg/stddev):   1.0000/1.00\n\n";
        assert_eq!(fairness(&clients), expected);
    }
}
