//! Validation of specifications.

use serde_json::{Value, json};

use crate::spec::{CLIENTS_MAX, Pacing, Spec};
use reactor::Nanos;

fn sound() -> Value {
    json!({"targets": [{"name": "a", "conninfo": {"user": "u"}}], "workload": {"kind": "select-only", "accounts": 1},
        "clients": 1, "threads": null, "seed": 1, "pacing": "none", "rate": null, "retries_max": 1,
        "slices": [{"target": 0, "role": "warm-up", "duration_s": 1}, {"target": 0, "role": "measure", "duration_s": 1.5, "transactions": null}],
        "discard_s": 0.05, "interval_s": 1, "barriers": true, "connect_timeout_s": 10, "drain_timeout_s": 5})
}

#[test]
fn a_valid_specification_is_read() {
    let spec = Spec::read(&sound().to_string()).expect("sound");
    assert_eq!(spec.slices[1].duration.0, 1_500_000_000);
    assert_eq!(spec.discard.0, 50_000_000);
}

#[test]
fn a_target_can_override_the_options_of_the_run() {
    let mut spec = sound();
    spec["rate"] = json!({"per_s": 5, "arrivals": "poisson"});
    spec["targets"] = json!([
        {"name": "a", "conninfo": {"user": "u"}},
        {"name": "b", "conninfo": {"user": "u"}, "clients": 7, "retries_max": 3, "workload": {"kind": "tpcc"}},
        {"name": "c", "conninfo": {"user": "u"}, "rate": null, "pacing": "keying-and-thinking"},
    ]);
    let spec = Spec::read(&spec.to_string()).expect("sound");
    let [a, b, c] = [0, 1, 2].map(|target| spec.driving(target));
    assert_eq!((a.clients, a.retries_max, a.pacing, a.rate), (1, 1, Pacing::None, spec.rate));
    assert_eq!((b.clients, b.retries_max, b.pacing, b.rate), (7, 3, Pacing::None, spec.rate));
    assert_eq!((c.clients, c.retries_max, c.pacing, c.rate), (1, 1, Pacing::KeyingAndThinking, None));
    assert_eq!([a, b, c].map(|one| &one.workload["kind"]), ["select-only", "tpcc", "select-only"]);
}

#[test]
fn a_target_has_the_requested_threads_but_no_more_than_clients() {
    let mut spec = sound();
    spec["targets"] = json!([{"name": "a", "conninfo": {"user": "u"}}, {"name": "b", "conninfo": {"user": "u"}, "clients": 9},
        {"name": "c", "conninfo": {"user": "u"}, "clients": 9, "threads": 3}]);
    for (asked, of_targets, used) in [(4, [1, 4, 3], 4), (2, [1, 2, 3], 3), (20, [1, 9, 3], 9)] {
        spec["threads"] = json!(asked);
        let spec = Spec::read(&spec.to_string()).expect("sound");
        assert_eq!([0, 1, 2].map(|target| spec.threads_of(target)), of_targets);
        assert_eq!(spec.threads_used(), used);
    }
}

#[test]
fn the_target_with_the_most_clients_determines_the_default_threads() {
    let mut alone = sound();
    (alone["clients"], alone["threads"]) = (json!(CLIENTS_MAX), Value::Null);
    let chosen = Spec::read(&alone.to_string()).expect("sound").threads_used();
    let mut spec = alone;
    spec["targets"] = json!([{"name": "a", "conninfo": {"user": "u"}, "clients": chosen}, {"name": "b", "conninfo": {"user": "u"}}]);
    let spec = Spec::read(&spec.to_string()).expect("sound");
    assert_eq!((spec.threads_of(0), spec.threads_of(1), spec.threads_used()), (chosen, chosen, chosen));
}

#[test]
fn an_invalid_target_is_rejected_with_its_name() {
    let cases = [
        (json!({"clients": 0}), "target b: clients: 0 is not"),
        (json!({"rate": {"per_s": 0, "arrivals": "constant"}}), "target b: rate: per_s"),
        (
            json!({"rate": {"per_s": 1, "arrivals": "constant"}, "pacing": "keying-and-thinking"}),
            "target b: rate: an open loop cannot",
        ),
        (json!({"threads": 0}), "target b: threads"),
        (json!({"discard_s": 1}), "unknown field `discard_s`"),
    ];
    for (own, expected) in cases {
        let mut spec = sound();
        let mut target = json!({"name": "b", "conninfo": {"user": "u"}});
        target.as_object_mut().expect("an object").extend(own.as_object().expect("an object").clone());
        spec["targets"] = json!([{"name": "a", "conninfo": {"user": "u"}}, target]);
        let problem = Spec::read(&spec.to_string()).expect_err("a wrong target").to_string();
        assert!(problem.contains(expected), "{problem}");
    }
}

#[test]
fn an_invalid_specification_is_rejected_with_its_problem() {
    let cases: [(&str, Value, &str); 14] = [
        ("/clients", json!(0), "clients"),
        ("/clients", json!(2001), "clients"),
        ("/threads", json!(0), "threads"),
        ("/targets", json!([]), "targets"),
        ("/slices/0/target", json!(1), "no target 1"),
        ("/slices/1/duration_s", json!(0.05), "must be greater than discard_s"),
        ("/slices/0/duration_s", json!(-1), "not between"),
        ("/interval_s", json!(0), "interval_s"),
        ("/rate", json!({"per_s": 0, "arrivals": "constant"}), "per_s"),
        ("/pacing", json!("sometimes"), "sometimes"),
        ("/seed", json!({"unknown": 1}), "invalid type"),
        ("/slices/1/transactions", json!(0), "slices[1]: transactions"),
        ("/slices/1/transactions", json!(1_000_000_000_001_u64), "slices[1]: transactions"),
        ("/slices/0/duration_s", json!(90.0 * 86_400.0 + 1.0), "90 days"),
    ];
    for (place, value, expected) in cases {
        let mut spec = sound();
        *spec.pointer_mut(place).expect("a place of the specification") = value;
        let problem = Spec::read(&spec.to_string()).expect_err(place).to_string();
        assert!(problem.contains(expected), "{place}: {problem}");
    }
    let mut spec = sound();
    spec["unknown"] = json!(1);
    assert!(Spec::read(&spec.to_string()).expect_err("an unknown key").to_string().contains("unknown"));
}

#[test]
fn nothing_is_discarded_of_a_slice_of_transactions() {
    let mut spec = sound();
    spec["slices"][1] = json!({"target": 0, "role": "measure", "duration_s": 0.01, "transactions": 5});
    let spec = Spec::read(&spec.to_string()).expect("sound, though shorter than discard_s");
    assert_eq!(spec.discarded(&spec.slices[1]), Nanos::ZERO);
    assert_eq!(spec.discarded(&spec.slices[0]), spec.discard);
}

#[test]
fn ninety_days_and_a_billion_transactions_are_allowed() {
    let mut spec = sound();
    let long = 90.0 * 86_400.0;
    spec["slices"][1] =
        json!({"target": 0, "role": "measure", "duration_s": long, "transactions": 1_000_000_000});
    let spec = Spec::read(&spec.to_string()).expect("sound");
    assert_eq!(spec.slices[1].duration, Nanos(7_776_000_000_000_000));
}

/// Two targets on this machine, driven at the same time on one core each.
fn duet() -> Value {
    let mut spec = sound();
    (spec["clients"], spec["threads"]) = (json!(4), Value::Null);
    spec["targets"] = json!([{"name": "a", "conninfo": {"user": "u"}, "postmaster_pid": 7},
        {"name": "b", "conninfo": {"user": "u"}, "postmaster_pid": 8}]);
    let slice =
        |role: &str, cores: Value| json!({"targets": [1, 0], "cores": cores, "role": role, "duration_s": 1});
    spec["slices"] = json!([slice("warm-up", json!([[0], [1]])), slice("measure", json!([[1], [0]]))]);
    spec
}

#[test]
fn targets_driven_at_the_same_time_have_separate_threads() {
    let spec = Spec::read(&duet().to_string()).expect("sound");
    assert_eq!(
        (&spec.slices[0].targets[..], &spec.slices[0].cores[..]),
        (&[1, 0][..], &[vec![0], vec![1]][..])
    );
    // One thread for each, as each has one core.
    assert_eq!(
        [0, 1].map(|target| (spec.first_thread_of(target), spec.threads_of(target))),
        [(0, 1), (1, 1)]
    );
    assert_eq!(spec.threads_used(), 2);
    let mut more = duet();
    more["threads"] = json!(3);
    let spec = Spec::read(&more.to_string()).expect("sound");
    assert_eq!(
        [0, 1].map(|target| (spec.first_thread_of(target), spec.threads_of(target))),
        [(0, 3), (3, 3)]
    );
}

#[test]
fn an_invalid_slice_of_several_targets_is_rejected_with_its_problem() {
    let cases: [(&str, Value, &str); 12] = [
        ("/slices/0/targets", json!([]), "slices[0]: targets: must not be empty"),
        ("/slices/0/targets", json!([0, 2]), "slices[0]: there is no target 2"),
        ("/slices/0/targets", json!([1, 1]), "slices[0]: targets: duplicate index 1"),
        ("/slices/0/targets", Value::Null, "either a target or targets"),
        ("/slices/1/cores", json!([[0]]), "slices[1]: cores: each target needs"),
        ("/slices/1/cores", json!([[0], []]), "slices[1]: cores: each target needs"),
        ("/slices/1/cores", json!([[0], [1, 0]]), "slices[1]: cores: duplicate core number"),
        ("/slices/1/cores", json!([[0], [4096]]), "slices[1]: cores: a core number is greater than"),
        ("/slices/1/cores", json!([]), "either all of them have cores or none"),
        ("/slices/1/cores", json!([[-1], [0]]), "invalid value"),
        (
            "/slices/1",
            json!({"targets": [0, 1], "role": "measure", "duration_s": 1, "transactions": 9}),
            "slices[1]: transactions: not allowed",
        ),
        (
            "/targets/1",
            json!({"name": "b", "conninfo": {"user": "u"}}),
            "target b: cores need postmaster_pid",
        ),
    ];
    for (place, value, expected) in cases {
        let mut spec = duet();
        *spec.pointer_mut(place).expect("a place of the specification") = value;
        let problem = Spec::read(&spec.to_string()).expect_err(place).to_string();
        assert!(problem.contains(expected), "{place}: {problem}");
    }
}

/// Two targets with seven and nine clients in four threads.
fn part(first_thread: u32, threads: u32) -> Value {
    let mut spec = sound();
    spec["targets"] = json!([{"name": "a", "conninfo": {"user": "u"}, "clients": 7}, {"name": "b", "conninfo": {"user": "u"}, "clients": 9}]);
    spec["threads"] = json!(4);
    spec["part"] = json!({"first_thread": first_thread, "threads": threads});
    spec
}

#[test]
fn parts_share_the_clients_without_a_rest() {
    let own = |first_thread, threads| {
        let spec = Spec::read(&part(first_thread, threads).to_string()).expect("sound");
        assert_eq!((spec.own_threads(), spec.threads_used()), ((first_thread, threads), 4));
        [0, 1].map(|target| spec.own_clients(target))
    };
    assert_eq!([own(0, 1), own(1, 2), own(3, 1)], [[2, 3], [4, 4], [1, 2]]);
    assert_eq!(own(0, 4), [7, 9]);
}

#[test]
fn a_part_that_the_run_does_not_have_is_refused() {
    let refused = |spec: &Value, expected: &str| {
        let message = Spec::read(&spec.to_string()).expect_err(expected).to_string();
        assert!(message.contains(expected), "{message}");
    };
    refused(&part(3, 2), "exceeds the 4 threads");
    refused(&part(u32::MAX, 2), "exceeds the 4 threads");
    refused(&part(0, 0), "threads: not between");
    let mut spec = part(0, 1);
    spec["threads"] = Value::Null;
    refused(&spec, "needs threads");
    let mut spec = part(0, 1);
    spec["targets"][0]["clients"] = json!(3);
    refused(&spec, "at least as many clients");
    let mut spec = part(0, 1);
    spec["targets"][0]["threads"] = json!(2);
    refused(&spec, "every target needs 4 threads");
    let mut spec = part(0, 2);
    spec["slices"][1] = json!({"targets": [0, 1], "role": "measure", "duration_s": 1.5});
    refused(&spec, "several targets at once");
    let mut spec = part(0, 1);
    spec["targets"][0]["clients"] = json!(5 * CLIENTS_MAX);
    refused(&spec, "the maximum of one engine");
}
