//! Slices limited by transactions.

use super::stage::{Counting, MS, Play, Reply, Server};
use crate::schedule::Schedule;
use crate::spec::{Arrivals, Pacing};
use reactor::Nanos;

/// A limit of transactions per client, within ten seconds.
fn bound(transactions: u64, replies: Vec<Reply>) -> Play {
    let mut play = Play::new(replies);
    play.slices = vec![(0, 10_000 * MS)];
    play.transactions = Some(transactions);
    play.lasts = 30_000 * MS;
    play
}

/// 1000 per second.
fn constant() -> Schedule {
    Schedule::new(Arrivals::Constant, 1_000.0, 0.0, 1)
}

#[test]
fn a_client_completes_exactly_its_share_and_the_slice_ends() {
    let play = bound(7, vec![Reply::Ok(30 * MS)]);
    let server = play.server.clone();
    let played = play.run();
    assert_eq!((played.measured().ok, played.totals().all), (7, 7));
    assert_eq!((played.done, played.drained), (vec![210 * MS], vec![(0, 210 * MS)]));
    assert_eq!(server.transactions().len(), 7);
}

#[test]
fn each_slice_has_its_own_share() {
    let mut play = bound(3, vec![Reply::Ok(10 * MS)]);
    play.slices = vec![(0, 100 * MS), (200 * MS, 300 * MS)];
    let played = play.run();
    assert_eq!((played.measured().ok, played.totals().all), (6, 6));
    assert_eq!((played.done, played.drained), (vec![30 * MS, 230 * MS], vec![(0, 30 * MS), (0, 230 * MS)]));
}

#[test]
fn the_slowest_client_ends_the_slice_and_no_other_takes_its_share() {
    let mut play = bound(5, vec![Reply::Ok(10 * MS)]);
    play.beside = Some(Server::new(vec![Reply::Ok(100 * MS)]));
    let servers = [play.server.clone(), play.beside.clone().expect("a second one")];
    let played = play.run();
    assert_eq!((played.measured().ok, played.totals().all), (10, 10));
    assert_eq!((played.done, played.drained), (vec![500 * MS], vec![(0, 500 * MS)]));
    assert_eq!(servers.map(|server| server.transactions().len()), [5, 5]);
}

#[test]
fn failures_and_rollbacks_count_in_the_share_and_retries_do_not() {
    let replies = vec![Reply::Error(10 * MS, "23505"), Reply::Error(10 * MS, "40001"), Reply::Ok(10 * MS)];
    let mut play = bound(6, replies);
    play.user = Counting { rolls_back: Some(3), ..Counting::default() };
    let played = play.run();
    let counts = played.measured();
    assert_eq!((counts.ok, counts.rolled_back, counts.failed, counts.retried), (3, 2, 1, 1));
    assert_eq!(played.done, [70 * MS]);
}

#[test]
fn after_a_lost_connection_a_client_continues_with_the_rest_of_its_share() {
    let play = bound(4, vec![Reply::Ok(10 * MS), Reply::Close(10 * MS), Reply::Ok(10 * MS)]);
    let server = play.server.clone();
    let played = play.run();
    assert_eq!((played.measured().ok, played.measured().failed), (3, 1));
    assert_eq!(played.record.connections_lost, 1);
    assert_eq!(server.transactions(), ["tx 1", "tx 2", "tx 3", "tx 4"]);
    assert_eq!((played.done, played.drained.len()), (vec![40 * MS], 1));
}

#[test]
fn a_connection_lost_in_the_last_transaction_is_replaced_for_the_next_slice() {
    let mut play = bound(2, vec![Reply::Ok(10 * MS), Reply::Close(10 * MS), Reply::Ok(10 * MS)]);
    play.slices = vec![(0, 100 * MS), (200 * MS, 300 * MS)];
    let played = play.run();
    assert_eq!((played.measured().ok, played.measured().failed), (3, 1));
    assert_eq!((played.done, played.drained), (vec![20 * MS, 220 * MS], vec![(0, 20 * MS), (0, 220 * MS)]));
    assert_eq!(played.events, ["error: the server closed the connection"]);
}

#[test]
fn a_client_that_loses_its_connection_at_the_end_is_done_once() {
    let mut play = bound(2, vec![Reply::Ok(10 * MS), Reply::Close(10 * MS), Reply::Ok(10 * MS)]);
    play.beside = Some(Server::new(vec![Reply::Ok(100 * MS)]));
    let server = play.server.clone();
    let played = play.run();
    assert_eq!((played.measured().ok, played.measured().failed), (3, 1));
    assert_eq!((played.done, played.drained), (vec![200 * MS], vec![(0, 200 * MS)]));
    assert_eq!(server.transactions().len(), 2);
}

#[test]
fn a_lost_server_leaves_the_share_incomplete() {
    let play = bound(4, vec![Reply::Ok(10 * MS), Reply::Close(10 * MS)]);
    play.server.admits.set(1);
    let played = play.run();
    assert_eq!((played.totals().ok, played.totals().failed), (1, 1));
    assert_eq!(played.events, ["error: the server closed the connection", "lost: nobody listens"]);
    assert!(played.done.is_empty());
}

#[test]
fn the_time_limit_ends_a_slice_limited_by_transactions() {
    let mut play = bound(1_000, vec![Reply::Ok(30 * MS)]);
    play.slices = vec![(0, 100 * MS)];
    let played = play.run();
    assert_eq!((played.measured().ok, played.totals().ok), (3, 4));
    assert_eq!((played.done, played.drained), (vec![], vec![(0, 120 * MS)]));
}

#[test]
fn a_slice_that_is_closed_early_leaves_its_share_incomplete() {
    let mut play = bound(3, vec![Reply::Ok(30 * MS)]);
    play.close_at = Some(40 * MS);
    let played = play.run();
    assert_eq!((played.measured().ok, played.totals().ok), (1, 2));
    assert_eq!((played.done, played.drained), (vec![], vec![(0, 60 * MS)]));
}

#[test]
fn a_hanging_transaction_keeps_the_slice_open_to_its_limit_and_is_abandoned() {
    let mut play = bound(3, vec![Reply::Ok(30 * MS), Reply::Silence]);
    play.close_at = Some(1_000 * MS);
    play.abandon_at = Some(5_000 * MS);
    let played = play.run();
    assert_eq!((played.totals().ok, played.totals().failed), (1, 1));
    assert_eq!((played.done, played.drained), (vec![], vec![(1, 5_100 * MS)]));
}

#[test]
fn an_open_loop_sends_its_transactions_on_schedule_until_its_share_is_complete() {
    let mut play = bound(20, vec![Reply::Ok(MS / 10)]);
    play.schedule = Some(constant());
    let played = play.run();
    assert_eq!((played.measured().ok, played.totals().all), (20, 20));
    assert_eq!(played.done, [19 * MS + MS / 10]);
}

#[test]
fn skipped_arrivals_of_an_open_loop_count_in_the_share() {
    let mut play = bound(1_005, vec![Reply::Ok(6_000 * MS), Reply::Ok(MS / 10)]);
    play.schedule = Some(constant());
    let played = play.run();
    // At 6 s, those of the first second are too late, except the first one, which was stuck.
    let totals = played.totals();
    assert_eq!((totals.ok, totals.skipped, totals.all), (6, 999, 1_005));
    assert_eq!(played.done, [6_000 * MS + 5 * MS / 10]);
}

#[test]
fn a_user_with_keying_and_think_times_completes_its_share() {
    let mut play = bound(3, vec![Reply::Ok(MS)]);
    play.user = Counting { keying: Nanos(20 * MS), thinking: Nanos(39 * MS), ..Counting::default() };
    play.rules.pacing = Pacing::KeyingAndThinking;
    let played = play.run();
    assert_eq!((played.totals().ok, played.done), (3, vec![141 * MS]));
}

#[test]
fn a_user_with_due_times_waits_for_them_and_latency_starts_there() {
    // The second transaction is late by the first, and the last one is due at the close.
    let mut play = Play::new(vec![Reply::Ok(35 * MS), Reply::Ok(MS)]);
    play.user = Counting { due: Some(|number| 20 * MS * u64::from(number)), ..Counting::default() };
    let server = play.server.clone();
    let played = play.run();
    let sent: Vec<_> = server.requests.borrow().iter().map(|(at, _)| at / MS).collect();
    assert_eq!(sent, [20, 55, 60, 80]);
    let measured = &played.record.measured[0];
    assert_eq!((measured.latency.count(), measured.lag.max_ns() / MS), (4, 15));
    assert_eq!(measured.latency.quantile_ns(0.75) / MS, 16, "of the second one, which had waited");
}

#[test]
fn a_late_transaction_is_timed_if_it_became_due_in_the_counted_part_of_an_earlier_slice() {
    // When each transaction is due, in ms, and whether it is timed. Slices take 100 ms, of which 20 are discarded.
    const DUE: [(u64, bool); 8] = [
        // Before the first slice.
        (100 - 10, false),
        (150, true),
        // In the discarded part of the first slice, then in its counted part.
        (500 - 90, false),
        (500 - 70, true),
        (505, false),
        // Likewise.
        (900 - 190, false),
        (900 - 130, true),
        (950, true),
    ];
    let mut play = Play::new(vec![Reply::Ok(10 * MS)]);
    play.slices = vec![(100 * MS, 200 * MS), (500 * MS, 600 * MS), (900 * MS, 1_000 * MS)];
    play.discard = 20 * MS;
    play.user.due = Some(|number| DUE.get(number as usize - 1).map_or(u64::MAX, |(ms, _)| ms * MS));
    let played = play.run();
    let (kind, timed) = (&played.record.measured[0], DUE.iter().filter(|(_, is_timed)| *is_timed).count());
    assert_eq!((played.totals().ok, kind.timed), (8, timed as u64));
    assert_eq!(kind.latency.max_ns() / MS, 150, "of the last late one");
}
