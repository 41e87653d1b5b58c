//! Transactions, retries, errors, slices.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::stage::{Counting, MS, Play, Played, Reply};
use crate::record::Counts;
use crate::spec::Pacing;
use reactor::Nanos;

fn counts(ok: u64, rolled_back: u64, failed: u64, retried: u64) -> Counts {
    Counts { all: ok + rolled_back + failed, ok, rolled_back, failed, skipped: 0, retried }
}

#[test]
fn a_closed_loop_sends_the_next_transaction_after_the_last_one() {
    let played = Play::new(vec![Reply::Ok(MS)]).run();
    assert_eq!(played.measured(), counts(100, 0, 0, 0));
    let kind = &played.record.measured[0];
    assert_eq!(kind.latency.bins(), vec![(1_000_447, 100)], "each took a millisecond, to three digits");
    assert_eq!(kind.service.bins(), kind.latency.bins());
    assert_eq!(kind.lag.bins(), vec![(0, 100)]);
    assert_eq!(played.drained, vec![(0, 100 * MS)]);
}

#[test]
fn errors_fail_or_retry_a_transaction() {
    use Reply::{Error, ErrorInTransaction, Ok};
    // First replies of the server, followed by Ok(50 ms); counts of a slice of 100 ms; the failure.
    let cases: [(&str, Vec<Reply>, Counts, Option<&str>); 6] = [
        ("a serialization failure is retried", vec![Error(MS, "40001")], counts(2, 0, 0, 1), None),
        ("a deadlock is retried", vec![Error(MS, "40P01")], counts(2, 0, 0, 1), None),
        ("so it is within a transaction", vec![ErrorInTransaction(MS, "40001")], counts(2, 0, 0, 1), None),
        ("no other error is", vec![Error(MS, "23505")], counts(2, 0, 1, 0), Some("23505")),
        (
            "nor within a transaction",
            vec![ErrorInTransaction(MS, "57014")],
            counts(2, 0, 1, 0),
            Some("57014"),
        ),
        (
            "retries have a limit",
            vec![Error(MS, "40001"), Error(MS, "40001"), Error(MS, "40001"), Error(MS, "40001")],
            counts(2, 0, 1, 3),
            Some("40001"),
        ),
    ];
    for (case, mut replies, expected, failure) in cases {
        replies.push(Ok(45 * MS));
        let play = Play::new(replies);
        let server = play.server.clone();
        let played = play.run();
        // The third Ok ends after the slice has closed.
        let totals = played.totals();
        assert_eq!(played.measured(), expected, "{case}");
        assert_eq!(
            (totals.ok, totals.failed, totals.retried),
            (3, expected.failed, expected.retried),
            "{case}"
        );
        let failures: Vec<_> = played.record.measured[0].failures.keys().map(String::as_str).collect();
        assert_eq!(failures, failure.into_iter().collect::<Vec<_>>(), "{case}");
        let rollbacks = server.requests.borrow().iter().filter(|(_, sql)| sql == "ROLLBACK").count();
        assert_eq!(rollbacks, usize::from(case.contains("within a transaction")), "{case}");
    }
}

#[test]
fn a_transaction_that_never_succeeds_ends_soon_after_its_slice() {
    let failures = |played: &Played| played.record.measured[0].failures.clone();
    // Every attempt fails after 3 ms: 33 end before the slice closes, one is in flight, and ten follow.
    for (restarts, retries_max) in [(true, 0), (false, u32::MAX)] {
        let mut play = Play::new(vec![Reply::ErrorInTransaction(3 * MS, "40001")]);
        play.user.restarts = restarts;
        play.rules.retries_max = retries_max;
        let server = play.server.clone();
        let played = play.run();
        assert_eq!(server.transactions().len(), 44);
        assert_eq!(played.totals(), counts(0, 0, 1, 43));
        assert_eq!(played.measured(), counts(0, 0, 1, 33), "the close of the slice ends it");
        assert_eq!(failures(&played), BTreeMap::from([("40001".to_owned(), 1)]));
        let rollbacks = server.requests.borrow().iter().filter(|(_, sql)| sql == "ROLLBACK").count();
        assert_eq!(
            rollbacks,
            if restarts { 1 } else { 44 },
            "a workload that restarts has rolled back itself"
        );
        let [(0, drained)] = played.drained[..] else { unreachable!("{:?}", played.drained) };
        assert!((132 * MS..133 * MS).contains(&drained), "{drained}");
    }
}

#[test]
fn a_restarting_transaction_ends_when_its_slice_is_closed_early_or_abandoned() {
    let mut play = Play::new(vec![Reply::Error(3 * MS, "23505")]);
    play.user.restarts = true;
    play.slices = vec![(0, 5_000 * MS)];
    play.close_at = Some(31 * MS);
    let played = play.run();
    assert_eq!((played.totals().failed, played.totals().retried), (1, 20));
    let mut play = Play::new(vec![Reply::Error(30 * MS, "23505")]);
    play.user.restarts = true;
    play.abandon_at = Some(150 * MS);
    let played = play.run();
    assert_eq!(played.drained, [(1, 250 * MS)]);
}

#[test]
fn a_retry_is_counted_when_it_begins() {
    // The only transaction succeeds after the close, so that it is in no count of the slice. Its retries are.
    let mut play = Play::new(vec![
        Reply::Error(40 * MS, "23505"),
        Reply::Error(40 * MS, "23505"),
        Reply::Error(40 * MS, "23505"),
        Reply::Ok(MS),
    ]);
    play.user.restarts = true;
    let played = play.run();
    assert_eq!(played.totals(), counts(1, 0, 0, 3));
    assert_eq!(played.measured(), Counts { retried: 2, ..Counts::default() });
}

#[test]
fn a_retried_transaction_is_identical_and_timed_from_its_first_attempt() {
    let play = Play::new(vec![Reply::Error(3 * MS, "40001"), Reply::Ok(7 * MS)]);
    let server = play.server.clone();
    let played = play.run();
    assert_eq!(server.transactions()[..3], ["tx 1", "tx 1", "tx 2"]);
    let slowest = played.record.measured[0].latency.max_ns();
    assert!((10 * MS..10 * MS + 10_000).contains(&slowest), "both attempts count: {slowest}");
}

#[test]
fn a_retry_can_be_another_transaction() {
    let mut play = Play::new(vec![Reply::Error(3 * MS, "40001"), Reply::Ok(7 * MS)]);
    play.user.redraws = true;
    let server = play.server.clone();
    let played = play.run();
    assert_eq!(server.transactions()[..3], ["tx 1", "tx 2", "tx 3"]);
    assert_eq!(played.totals(), counts(14, 0, 0, 1));
}

#[test]
fn a_rollback_by_design_is_neither_a_success_nor_a_failure() {
    let mut play = Play::new(vec![Reply::Ok(MS)]);
    play.user = Counting { rolls_back: Some(10), ..Counting::default() };
    let played = play.run();
    assert_eq!(played.measured(), counts(90, 10, 0, 0));
    assert_eq!(played.record.measured[0].latency.count(), 90);
}

#[test]
fn a_transaction_adds_to_the_counters_of_its_workload_once_and_only_if_it_commits() {
    let replies = vec![Reply::Error(10 * MS, "23505"), Reply::Error(10 * MS, "40001"), Reply::Ok(10 * MS)];
    let mut play = Play::new(replies);
    play.user = Counting { rolls_back: Some(3), ..Counting::default() };
    play.slices = vec![(0, 60 * MS)];
    let played = play.run();
    let totals = played.totals();
    assert_eq!((totals.failed, totals.retried, totals.rolled_back, totals.ok), (1, 1, 1, 3));
    assert_eq!(played.record.counters, [2 + 4 + 5], "the first failed, the third was rolled back");
}

#[test]
fn a_lost_connection_fails_its_transaction_and_is_replaced() {
    let played = Play::new(vec![Reply::Ok(10 * MS), Reply::Close(10 * MS), Reply::Ok(10 * MS)]).run();
    assert_eq!(played.measured(), counts(9, 0, 1, 0));
    assert_eq!(played.record.measured[0].failures.get("connection"), Some(&1));
    assert_eq!(played.record.connections_lost, 1);
    assert_eq!(played.events, ["error: the server closed the connection"]);
}

#[test]
fn a_lost_server_is_reported_once_and_nothing_measured_is_lost() {
    let play = Play::new(vec![Reply::Ok(10 * MS), Reply::Ok(10 * MS), Reply::Close(10 * MS)]);
    play.server.admits.set(1);
    let played = play.run();
    assert_eq!(played.totals(), counts(2, 0, 1, 0));
    assert_eq!(played.record.connections_lost, 1);
    assert_eq!(played.events, ["error: the server closed the connection", "lost: nobody listens"]);
    assert_eq!(played.drained.len(), 1);
}

#[test]
fn a_server_that_hangs_during_calibration_is_a_failure() {
    let mut play = Play::new(vec![Reply::Ok(MS), Reply::Ok(MS), Reply::Silence]);
    play.calibrates = true;
    let played = play.run();
    assert_eq!(played.events.len(), 1, "{:?}", played.events);
    assert!(
        played.events[0]
            .starts_with("connect: no answer from the server within 1 s while measuring the round trip")
    );
}

#[test]
fn a_server_that_hangs_during_preparation_is_a_failure() {
    let mut play = Play::new(vec![Reply::Silence]);
    play.user = Counting { prepares: true, ..Counting::default() };
    let played = play.run();
    assert_eq!(
        played.events,
        [
            "prepare: no answer from the server within 1 s while preparing a connection; check that it runs and that the network passes its answers"
        ]
    );
    assert_eq!(played.totals(), Counts::default());
}

#[test]
fn a_slice_is_drained_before_the_next_and_late_transactions_are_not_counted() {
    let mut play = Play::new(vec![Reply::Ok(30 * MS)]);
    play.slices = vec![(0, 100 * MS), (200 * MS, 300 * MS)];
    let server = play.server.clone();
    let played = play.run();
    assert_eq!(played.drained, vec![(0, 120 * MS), (0, 320 * MS)]);
    assert_eq!((played.measured().ok, played.totals().ok), (6, 8));
    let sent: Vec<_> = server.requests.borrow().iter().map(|(at, _)| at / MS).collect();
    assert_eq!(sent, [0, 30, 60, 90, 200, 230, 260, 290]);
}

#[test]
fn a_transaction_in_flight_at_the_close_is_timed_but_not_counted() {
    let played = Play::new(vec![Reply::Ok(40 * MS), Reply::Ok(300 * MS)]).run();
    let kind = &played.record.measured[0];
    assert_eq!(kind.counts, counts(1, 0, 0, 0), "only the first was done within the slice of 100 ms");
    assert_eq!((kind.timed, kind.latency.count()), (2, 2));
    assert!(kind.latency.max_ns() >= 300 * MS, "the slow one is not lost");
}

#[test]
fn a_client_that_first_sends_after_the_discarded_part_times_one_more_than_it_counts() {
    let timed_and_counted = |opens_late| {
        let mut play = Play::new(vec![Reply::Ok(30 * MS)]);
        (play.discard, play.opens_late) = (20 * MS, opens_late);
        let kind = &play.run().record.measured[0];
        (kind.timed, kind.counts.ok)
    };
    assert_eq!(
        timed_and_counted(0),
        (3, 3),
        "one in flight at either end: counted at the first, timed at the last"
    );
    assert_eq!(timed_and_counted(25 * MS), (3, 2), "none in flight at the start of the counted part");
}

#[test]
fn a_slice_that_is_closed_early_sends_nothing_more() {
    let mut play = Play::new(vec![Reply::Ok(30 * MS)]);
    play.close_at = Some(40 * MS);
    let played = play.run();
    assert_eq!((played.measured().ok, played.totals().ok), (1, 2));
    assert_eq!(played.drained, vec![(0, 60 * MS)]);
}

#[test]
fn a_hanging_transaction_is_abandoned_canceled_and_counted_as_failed() {
    let mut play = Play::new(vec![Reply::Ok(30 * MS), Reply::Silence]);
    play.abandon_at = Some(5_000 * MS);
    let server = play.server.clone();
    let played = play.run();
    assert_eq!(played.totals(), counts(1, 0, 1, 0));
    assert_eq!(played.measured(), counts(1, 0, 1, 0), "the close of the slice ends it");
    assert_eq!(played.record.measured[0].failures, BTreeMap::from([("abandoned".to_owned(), 1)]));
    assert_eq!(played.drained, vec![(1, 5_100 * MS)], "after the CancelRequest");
    assert_eq!(server.cancels.get(), 1);
    assert_eq!(played.record.connections_lost, 0, "it was the driver that ended it");
}

#[test]
fn a_transaction_that_hangs_in_its_rollback_is_abandoned_likewise() {
    let mut play = Play::new(vec![Reply::ErrorInTransaction(30 * MS, "23505")]);
    play.abandon_at = Some(5_000 * MS);
    let server = play.server.clone();
    *server.rollback.borrow_mut() = Reply::Silence;
    let played = play.run();
    assert_eq!(played.measured(), counts(0, 0, 1, 0));
    assert_eq!(played.record.measured[0].failures, BTreeMap::from([("abandoned".to_owned(), 1)]));
    assert_eq!((played.drained, server.cancels.get()), (vec![(1, 5_100 * MS)], 1));
    assert_eq!(played.record.connections_lost, 0);
}

#[test]
fn keying_and_think_times_are_suspended_between_slices() {
    let mut play = Play::new(vec![Reply::Ok(MS)]);
    play.user = Counting { keying: Nanos(20 * MS), thinking: Nanos(39 * MS), ..Counting::default() };
    play.rules.pacing = Pacing::KeyingAndThinking;
    play.slices = vec![(0, 100 * MS), (500 * MS, 600 * MS)];
    let server = play.server.clone();
    let played = play.run();
    // Keying until 20, done at 21, then 59 of think and keying time: 80, 81. Of the next 59, 19 pass in the
    // first slice.
    let sent: Vec<_> = server.requests.borrow().iter().map(|(at, _)| at / MS).collect();
    assert_eq!(sent, [20, 80, 540]);
    assert_eq!(played.record.measured[0].lag.max_ns(), 0);
}

fn reply() -> impl Strategy<Value = Reply> {
    let code = prop_oneof![Just("40001"), Just("40P01"), Just("23505"), Just("57014")];
    prop_oneof![
        4 => (1..20 * MS).prop_map(Reply::Ok),
        2 => (1..20 * MS, code.clone()).prop_map(|(after, code)| Reply::Error(after, code)),
        2 => (1..20 * MS, code).prop_map(|(after, code)| Reply::ErrorInTransaction(after, code)),
        1 => (1..20 * MS).prop_map(Reply::Close),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_transaction_has_one_outcome_with_any_server(
        mut replies in prop::collection::vec(reply(), 0..30),
        rolls_back in prop::option::of(1_u32..5),
    ) {
        replies.push(Reply::Ok(MS));
        let mut play = Play::new(replies);
        play.user = Counting { rolls_back, ..Counting::default() };
        let played: Played = play.run();
        let totals = played.totals();
        prop_assert_eq!(totals.all, played.begun);
        prop_assert_eq!(totals.ok + totals.rolled_back + totals.failed + totals.skipped, totals.all);
        let failures: u64 = played.record.measured[0].failures.values().sum();
        prop_assert_eq!(failures, played.measured().failed);
        prop_assert_eq!(played.record.measured[0].latency.count(), played.record.measured[0].timed);
        prop_assert_eq!(played.drained.len(), 1);
    }
}
