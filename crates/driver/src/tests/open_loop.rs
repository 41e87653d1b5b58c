//! Open loops: the schedule goes on whatever the server does.

use super::stage::{MS, Play, Reply};
use crate::record::{Histogram, Kind};
use crate::schedule::Schedule;
use crate::spec::Arrivals;

/// So many a second.
fn constant(per_s: f64) -> Schedule {
    Schedule::new(Arrivals::Constant, per_s, 0.0, 1)
}

fn longer_than(bins: &[(u64, u64)], limit: u64) -> u64 {
    bins.iter().filter(|&&(value, _)| value > limit).map(|&(_, count)| count).sum()
}

#[test]
fn a_stall_of_the_server_shows_in_the_latency_of_all_whose_time_came_meanwhile() {
    let mut replies = vec![Reply::Ok(MS / 10); 50];
    replies.extend([Reply::Ok(100 * MS), Reply::Ok(MS / 10)]);
    let mut play = Play::new(replies);
    play.slices = vec![(0, 1_000 * MS)];
    play.schedule = Some(constant(1_000.0));
    let played = play.run();
    assert_eq!(played.measured().ok, 1_000);
    let kind = &played.record.measured[0];
    let [latency, service, lag] = [&kind.latency, &kind.service, &kind.lag].map(Histogram::bins);
    // The stalled one is sent at 50 ms and done at 150. Those of 51 to 149 wait for it; then the backlog of n takes
    // n/10 ms, in which a tenth as many come again.
    assert_eq!(longer_than(&service, 10 * MS), 1, "only one was served slowly");
    assert_eq!(longer_than(&latency, 50 * MS), 56, "but many waited");
    assert_eq!(longer_than(&lag, 50 * MS), 55);
    assert_eq!(longer_than(&latency, MS), 111);
    assert!(kind.latency.max_ns() >= 100 * MS);
}

#[test]
fn what_nobody_could_send_until_the_slice_closed_is_skipped_and_the_sum_is_the_schedule() {
    let mut play = Play::new(vec![Reply::Ok(10 * MS)]);
    play.slices = vec![(0, 1_000 * MS)];
    play.schedule = Some(constant(1_000.0));
    let played = play.run();
    let totals = played.totals();
    assert_eq!((totals.ok, totals.skipped, totals.all), (100, 900, 1_000));
    assert_eq!(played.measured(), totals, "what is skipped counts when its time was counted");
}

#[test]
fn an_arrival_that_is_hopelessly_late_is_skipped() {
    let mut play = Play::new(vec![Reply::Ok(7_000 * MS), Reply::Ok(MS / 10)]);
    play.slices = vec![(0, 8_000 * MS)];
    play.schedule = Some(constant(1_000.0));
    play.lasts = 20_000 * MS;
    let played = play.run();
    // At 7 s those of the first 2 s are more than 5 s late. The first of all is the one that was stuck.
    let totals = played.totals();
    assert_eq!(totals.all, 8_000);
    assert!((1_998..=2_000).contains(&totals.skipped), "{totals:?}");
}

#[test]
fn a_schedule_that_is_closed_early_asks_for_nothing_after_that() {
    let mut play = Play::new(vec![Reply::Ok(MS / 10)]);
    play.slices = vec![(0, 1_000 * MS)];
    play.schedule = Some(constant(1_000.0));
    play.close_at = Some(500 * MS + MS / 2);
    let played = play.run();
    assert_eq!((played.totals().ok, played.totals().skipped), (501, 0));
}

/// One client of a server that takes 10 ms, at 120 a second, in these slices.
fn overloaded(slices: Vec<(u64, u64)>) -> Kind {
    let mut play = Play::new(vec![Reply::Ok(10 * MS)]);
    play.slices = slices;
    play.schedule = Some(constant(120.0));
    play.lasts = 100_000 * MS;
    play.run().record.measured.remove(0)
}

#[test]
fn slices_show_an_overload_as_one_long_slice_does() {
    let whole = overloaded(vec![(0, 10_000 * MS)]);
    // Slices of 995 ms: the one in flight at each close ends 5 ms after it, which counts as time of the slice.
    let slices = overloaded((0..10).map(|n| (n * 3_000 * MS, (n * 3_000 + 995) * MS)).collect());
    assert_eq!((whole.latency.len(), whole.skipped.len()), (1_000, 201));
    assert!((995..=1_000).contains(&slices.latency.len()), "{}", slices.latency.len());
    assert!((195..=200).contains(&slices.skipped.len()), "{}", slices.skipped.len());
    for quantile in [0.5, 0.99] {
        let [one, other] = [&whole, &slices].map(|kind| kind.latency.quantile_ns(quantile));
        assert!(one.abs_diff(other) < 20 * MS, "{quantile}: {one} {other}");
    }
    // The oldest one that was never sent had waited as long as the last one that was.
    let [one, other] = [&whole, &slices].map(|kind| kind.skipped.max_ns());
    assert!(one > 1_600 * MS && one.abs_diff(other) < 20 * MS, "{one} {other}");
}

#[test]
fn an_arrival_that_is_skipped_is_known_to_be_as_late_as_the_limit() {
    let kind = overloaded(vec![(0, 60_000 * MS)]);
    let late = longer_than(&kind.skipped.bins(), 5_000 * MS);
    // From 30 s on the queue is as long as the limit, and 20 a second are too many.
    assert!((570..=610).contains(&late), "{late}");
    assert!(kind.latency.max_ns() <= 5_020 * MS);
}

#[test]
fn a_slice_that_is_closed_early_leaves_its_arrivals_to_the_next() {
    let mut play = Play::new(vec![Reply::Ok(MS / 10)]);
    play.slices = vec![(0, 1_000 * MS), (1_000 * MS, 1_500 * MS)];
    play.schedule = Some(constant(1_000.0));
    play.close_at = Some(500 * MS + MS / 2);
    let played = play.run();
    assert_eq!((played.totals().ok, played.totals().skipped), (1_001, 0));
    assert!(played.record.measured[0].latency.max_ns() < MS);
}
