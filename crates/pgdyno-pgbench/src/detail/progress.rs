//! Completed share of a run, and its estimated remaining time.

use crate::bench::Bench;
use crate::statistics::Statistics;
use reactor::Nanos;

/// The part of a progress line about the rest of the run. `run`: time so far.
#[must_use]
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
