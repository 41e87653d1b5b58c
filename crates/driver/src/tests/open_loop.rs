//! Open loops: arrivals do not depend on the server.

use super::stage::{MS, Play, Reply};
use crate::record::{Histogram, Kind};
use crate::schedule::Schedule;
use crate::spec::Arrivals;

/// A constant rate per second.
fn constant(per_s: f64) -> Schedule {
    Schedule::new(Arrivals::Constant, per_s, 0.0, 1)
}

fn longer_than(bins: &[(u64, u64)], limit: u64) -> u64 {
    bins.iter().filter(|&&(value, _)| value > limit).map(|&(_, count)| count).sum()
}

#[test]
fn a_stall_of_the_server_is_in_the_latency_of_all_arrivals_during_it() {
    let mut replies = vec![Reply::Ok(MS / 10); 50];
    replies.extend([Reply::Ok(100 * MS), Reply::Ok(MS / 10)]);
    let mut play = Play::new(replies);
    play.slices = vec![(0, 1_000 * MS)];
    play.schedule = Some(constant(1_000.0));
    let played = play.run();
    assert_eq!(played.measured().ok, 1_000);
    let kind = &played.record.measured[0];
    let [latency, service, lag] = [&kind.latency, &kind.service, &kind.lag].map(Histogram::bins);
    // The stalled one is sent at 50 ms and done at 150 ms. Those of 51 to 149 wait for it; then a backlog of n
    // takes n/10 ms, during which a tenth as many arrive.
    assert_eq!(longer_than(&service, 10 * MS), 1, "only one was served slowly");
    assert_eq!(longer_than(&latency, 50 * MS), 56, "but many waited");
    assert_eq!(longer_than(&lag, 50 * MS), 55);
    assert_eq!(longer_than(&latency, MS), 111);
    assert!(kind.latency.max_ns() >= 100 * MS);
}

#[test]
fn arrivals_not_sent_by_the_close_are_skipped_and_all_arrivals_are_counted() {
    let mut play = Play::new(vec![Reply::Ok(10 * MS)]);
    play.slices = vec![(0, 1_000 * MS)];
    play.schedule = Some(constant(1_000.0));
    let played = play.run();
    let totals = played.totals();
    assert_eq!((totals.ok, totals.skipped, totals.all), (100, 900, 1_000));
    assert_eq!(played.measured(), totals, "what is skipped counts when its time was counted");
}

#[test]
fn arrivals_behind_a_hanging_transaction_are_skipped_at_the_close() {
    let mut replies = vec![Reply::Ok(MS / 10); 500];
    replies.push(Reply::Silence);
    let mut play = Play::new(replies);
    play.slices = vec![(0, 1_000 * MS)];
    play.schedule = Some(constant(1_000.0));
    play.abandon_at = Some(2_000 * MS);
    let played = play.run();
    let totals = played.totals();
    assert_eq!((totals.ok, totals.failed, totals.skipped, totals.all), (500, 1, 499, 1_000));
    assert_eq!(played.measured(), totals);
}

#[test]
fn arrivals_of_a_slice_that_reaches_the_clients_after_its_close_are_skipped() {
    let mut play = Play::new(vec![Reply::Ok(10 * MS)]);
    play.slices = vec![(0, 1_000 * MS)];
    play.opens_late = 2_000 * MS;
    play.schedule = Some(constant(1_000.0));
    let totals = play.run().totals();
    assert_eq!((totals.ok, totals.skipped, totals.all), (0, 1_000, 1_000));
}

#[test]
fn an_arrival_that_is_too_late_is_skipped() {
    let mut play = Play::new(vec![Reply::Ok(7_000 * MS), Reply::Ok(MS / 10)]);
    play.slices = vec![(0, 8_000 * MS)];
    play.schedule = Some(constant(1_000.0));
    play.lasts = 20_000 * MS;
    let played = play.run();
    // At 7 s, those of the first 2 s are more than 5 s late. The first one was stuck.
    let totals = played.totals();
    assert_eq!(totals.all, 8_000);
    assert!((1_998..=2_000).contains(&totals.skipped), "{totals:?}");
}

#[test]
fn a_schedule_that_is_closed_early_has_no_later_arrivals() {
    let mut play = Play::new(vec![Reply::Ok(MS / 10)]);
    play.slices = vec![(0, 1_000 * MS)];
    play.schedule = Some(constant(1_000.0));
    play.close_at = Some(500 * MS + MS / 2);
    let played = play.run();
    assert_eq!((played.totals().ok, played.totals().skipped), (501, 0));
}

/// One client of a server that takes 10 ms, at a rate of 120 per second, in these slices.
fn overloaded(slices: Vec<(u64, u64)>) -> Kind {
    let mut play = Play::new(vec![Reply::Ok(10 * MS)]);
    play.slices = slices;
    play.schedule = Some(constant(120.0));
    play.lasts = 100_000 * MS;
    play.run().record.measured.remove(0)
}

#[test]
fn slices_have_the_same_overload_latency_as_one_long_slice() {
    let whole = overloaded(vec![(0, 10_000 * MS)]);
    // Slices of 995 ms: the transaction in flight at each close ends 5 ms later, which counts as time of the
    // slice.
    let slices = overloaded((0..10).map(|n| (n * 3_000 * MS, (n * 3_000 + 995) * MS)).collect());
    assert_eq!((whole.latency.count(), whole.skipped.count()), (1_000, 201));
    assert!((995..=1_000).contains(&slices.latency.count()), "{}", slices.latency.count());
    assert!((195..=200).contains(&slices.skipped.count()), "{}", slices.skipped.count());
    for quantile in [0.5, 0.99] {
        let [one, other] = [&whole, &slices].map(|kind| kind.latency.quantile_ns(quantile));
        assert!(one.abs_diff(other) < 20 * MS, "{quantile}: {one} {other}");
    }
    // The oldest one that was never sent waited as long as the last one that was sent.
    let [one, other] = [&whole, &slices].map(|kind| kind.skipped.max_ns());
    assert!(one > 1_600 * MS && one.abs_diff(other) < 20 * MS, "{one} {other}");
}

#[test]
fn a_skipped_arrival_has_at_least_the_latency_of_the_limit() {
    let kind = overloaded(vec![(0, 60_000 * MS)]);
    let late = longer_than(&kind.skipped.bins(), 5_000 * MS);
    // From 30 s on, the queue is as long as the limit, and 20 per second exceed it.
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
