#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::statistics::Outcome;

const OUTCOMES: [Outcome; 5] =
    [Outcome::Done, Outcome::Skipped, Outcome::Serialization, Outcome::Deadlock, Outcome::Other];

fn ended(outcome: Outcome, tries: u32, latency_ns: u64) -> Ended {
    let (lag, at) = (Nanos::ZERO, Nanos::ZERO);
    Ended { script: 0, outcome, tries, latency: Nanos(latency_ns), lag, is_late: false, at }
}

fn series(transactions: &[(u64, usize, u64)]) -> Series {
    let mut series = Series::default();
    for &(run_ms, outcome, latency_ns) in transactions {
        series.add(&ended(OUTCOMES[outcome], 2, latency_ns), Nanos(run_ms * 1_000_000));
    }
    series
}

fn sum(series: &Series) -> Point {
    let mut sum = Point::default();
    for point in &series.points {
        sum.done += point.done;
        sum.failed += point.failed;
        sum.skipped += point.skipped;
        sum.retries += point.retries;
        sum.latency_ns_sum += point.latency_ns_sum;
        sum.latency_ns_max = sum.latency_ns_max.max(point.latency_ns_max);
    }
    sum
}

proptest! {
    #[test]
    fn a_series_preserves_all_counts_at_any_step_and_merge(
        transactions in prop::collection::vec((0_u64..40_000_000, 0_usize..5, 0_u64..1_000_000), 1..100),
        at in any::<prop::sample::Index>(),
    ) {
        let at = at.index(transactions.len());
        let whole = series(&transactions);
        let mut merged = series(&transactions[..at]);
        merged.merge(&series(&transactions[at..]));
        prop_assert_eq!(&merged, &whole);
        prop_assert!(whole.points.len() <= POINTS_MAX);
        let of = |outcomes: &[usize]| {
            let these = transactions.iter().filter(|(_, outcome, _)| outcomes.contains(outcome));
            these.map(|(_, _, latency_ns)| *latency_ns).collect::<Vec<_>>()
        };
        let (done, failed, skipped) = (of(&[0]), of(&[2, 3, 4]), of(&[1]));
        prop_assert_eq!(sum(&whole), Point {
            done: done.len() as u64,
            failed: failed.len() as u64,
            skipped: skipped.len() as u64,
            retries: transactions.len() as u64,
            latency_ns_sum: done.iter().sum(),
            latency_ns_max: done.iter().max().copied().unwrap_or(0),
        });
    }
}

#[test]
fn steps_are_one_second_until_there_are_too_many_points() {
    let second = 1_000_000_000;
    let mut series = series(&[(0, 0, 5), (999, 0, 7), (1_000, 2, 0), (4_095_000, 0, 1)]);
    assert_eq!((series.step, series.points.len()), (Nanos(second), POINTS_MAX));
    assert_eq!((series.points[0].done, series.points[0].latency_ns_sum), (2, 12));
    assert_eq!((series.points[1].failed, series.points[4095].done), (1, 1));
    series.add(&ended(Outcome::Done, 1, 9), Nanos(4096 * second));
    assert_eq!((series.step, series.points.len()), (Nanos(2 * second), 2049));
    assert_eq!((series.points[0].done, series.points[0].failed), (2, 1));
    // Three weeks.
    series.add(&ended(Outcome::Done, 1, 9), Nanos(21 * 86_400 * second));
    assert_eq!(series.step, Nanos(512 * second));
}

#[test]
fn a_record_merged_from_threads_is_the_record_of_all() {
    let mut scripts = Scripts::default();
    scripts.add("s", b"select 1;\nselect 2;\n", 1).unwrap();
    let empty = Record::new(&scripts, true);
    let (mut all, mut parts) = (empty.clone(), [empty.clone(), empty.clone()]);
    for number in 0..1000 {
        let outcome = OUTCOMES[number as usize % 5];
        let (ended, run) = (ended(outcome, 1, number * 1000), Nanos(number * 10_000_000));
        for record in [&mut all, &mut parts[number as usize % 2]] {
            record.add(&ended, run);
            record.add_command(0, 1, Nanos(number));
            record.add_failure(0, 0, number % 3 == 0);
        }
    }
    let mut merged = empty;
    for part in &parts {
        merged.merge(part);
    }
    assert_eq!(merged.total().done, 200);
    assert_eq!(merged.total().all(), all.total().all());
    assert_eq!(merged.latency().unwrap().bins(), all.latency().unwrap().bins());
    assert_eq!(merged.latency().unwrap().count(), 200);
    assert_eq!(merged.series, all.series);
    let [first, second] = &merged.scripts[0].commands[..] else { unreachable!() };
    assert_eq!((first.statistics.retries, first.statistics.failures), (334, 666));
    assert_eq!(second.latency.as_ref().unwrap().count(), 1000);
    assert_eq!(second.statistics.time.count, 1000);
}

#[test]
fn a_retry_is_counted_before_its_transaction_ends() {
    let script = ScriptRecord { commands: vec![CommandRecord::default(); 2], ..ScriptRecord::default() };
    let mut record = Record { scripts: vec![script], series: None };
    record.add_failure(0, 1, true);
    record.add_failure(0, 0, true);
    record.add_failure(0, 0, false);
    assert_eq!((record.retries(), record.total().retries), (2, 0));
    record.merge(&record.clone());
    assert_eq!(record.retries(), 4);
}
