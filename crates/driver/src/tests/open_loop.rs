//! Open loops: the schedule goes on whatever the server does.

use super::stage::{MS, Play, Reply};
use crate::record::Histogram;
use crate::schedule::Schedule;
use crate::spec::Arrivals;
use reactor::Nanos;

/// A thousand a second.
fn constant(from: Nanos) -> Schedule {
    Schedule::new(Arrivals::Constant, 1_000.0, 0.0, from, 1)
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
    play.schedule = Some(constant);
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
    play.schedule = Some(constant);
    let played = play.run();
    let totals = played.totals();
    assert_eq!((totals.ok, totals.skipped, totals.all), (100, 900, 1_000));
    assert_eq!(played.measured(), totals, "what is skipped counts when its time was counted");
}

#[test]
fn an_arrival_that_is_hopelessly_late_is_skipped() {
    let mut play = Play::new(vec![Reply::Ok(7_000 * MS), Reply::Ok(MS / 10)]);
    play.slices = vec![(0, 8_000 * MS)];
    play.schedule = Some(constant);
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
    play.schedule = Some(constant);
    play.close_at = Some(500 * MS + MS / 2);
    let played = play.run();
    assert_eq!((played.totals().ok, played.totals().skipped), (501, 0));
}
