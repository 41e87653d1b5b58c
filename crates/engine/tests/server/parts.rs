//! Runs of several engines, of which each executes a part.

use serde_json::{Value, json};

use pgdyno_engine::drive::Input;
use reactor::{Clock, Nanos};
use test_server::Database;

use super::driving::{ask, drive_with, execute, specification};

#[test]
fn parts_of_runs() {
    let Some(server) = Database::create("parts") else { return };
    execute(&server, "CREATE TABLE sent (client int, script int, x int)");
    parts_send_the_transactions_of_the_whole(&server);
    parts_have_the_arrivals_of_the_whole(&server);
    a_slice_opens_at_the_agreed_instant_or_fails(&server);
    the_end_of_the_warm_up_skips_a_slice_that_is_ready(&server);
}

const CLIENTS: u64 = 7;

/// A run with seven clients in four threads, whole and in two parts.
fn whole_and_parts(server: &Database) -> (Value, [Value; 2]) {
    let script = |number: u32| {
        let text =
            format!("\\set x random(1, 1000000000)\ninsert into sent values (:client_id, {number}, :x);");
        json!({"name": number.to_string(), "text": text, "weight": number})
    };
    let mut whole = specification(server);
    whole["targets"].as_array_mut().unwrap().pop();
    whole["workload"] =
        json!({"kind": "pgbench", "protocol": "prepared", "scale": 1, "scripts": [script(1), script(2)]});
    (whole["clients"], whole["threads"]) = (json!(CLIENTS), json!(4));
    let part = |first_thread: u32, threads: u32| {
        let mut part = whole.clone();
        part["part"] = json!({"first_thread": first_thread, "threads": threads});
        part
    };
    let parts = [part(0, 1), part(1, 3)];
    (whole, parts)
}

/// Opens each slice now, whatever the other parts do. Only warm-up slices may open late, as on a busy machine.
fn drive_part(specification: &Value) -> Vec<Value> {
    drive_with(specification, &|event| match event["event"].as_str() {
        Some("barrier") => Some(Input::Continue),
        Some("ready") => Some(Input::Open { at_monotonic: Clock::monotonic().epoch() + Nanos(1_000_000) }),
        _ => None,
    })
}

fn parts_send_the_transactions_of_the_whole(server: &Database) {
    let (mut whole, mut parts) = whole_and_parts(server);
    let slice = |role: &str, transactions: u64| json!({"target": 0, "role": role, "duration_s": 3600.0, "transactions": transactions});
    let slices = json!([slice("warm-up", 5), slice("warm-up", 40)]);
    for specification in [&mut whole].into_iter().chain(&mut parts) {
        specification["slices"] = slices.clone();
    }
    let sent = |specifications: &[Value]| {
        execute(server, "TRUNCATE sent");
        let runs: Vec<_> = specifications.iter().map(drive_part).collect();
        let clients = runs.iter().flat_map(|events| events.iter().filter(|e| e["event"] == "connected"));
        assert_eq!(clients.map(|event| event["clients"].as_u64().unwrap()).sum::<u64>(), CLIENTS);
        // The clients of a thread share the choice of scripts, so only its totals do not depend on timing.
        let drawn = ask(server, "SELECT client, x FROM sent ORDER BY 1, 2");
        (drawn, ask(server, "SELECT script, count(*) FROM sent GROUP BY 1 ORDER BY 1"))
    };
    let expected = sent(&[whole]);
    assert_eq!(expected.0.len() as u64, CLIENTS * 45);
    assert!(sent(&parts) == expected, "the parts sent other transactions");
}

fn parts_have_the_arrivals_of_the_whole(server: &Database) {
    let (mut whole, mut parts) = whole_and_parts(server);
    for specification in [&mut whole].into_iter().chain(&mut parts) {
        specification["rate"] = json!({"per_s": 400.0, "arrivals": "poisson"});
        specification["slices"] = json!([{"target": 0, "role": "warm-up", "duration_s": 0.5}]);
    }
    let arrived = |specification: &Value| {
        let events = drive_part(specification);
        let totals = events.last().unwrap()["targets"][0]["totals"].as_object().unwrap().clone();
        let outcomes = ["ok", "failed", "skipped"];
        totals.values().flat_map(|of| outcomes.map(|key| of[key].as_u64().unwrap())).sum::<u64>()
    };
    let expected = arrived(&whole);
    assert!(expected > 100, "{expected}");
    assert_eq!(parts.iter().map(arrived).sum::<u64>(), expected);
}

fn a_slice_opens_at_the_agreed_instant_or_fails(server: &Database) {
    let (_, [part, _]) = whole_and_parts(server);
    let at = Clock::monotonic().epoch() + Nanos(500_000_000);
    let open_at = |role: &str, at: Nanos| {
        let mut part = part.clone();
        part["slices"] = json!([{"target": 0, "role": role, "duration_s": 0.1}]);
        drive_with(&part, &|event| match event["event"].as_str() {
            Some("barrier") => Some(Input::Continue),
            Some("ready") => Some(Input::Open { at_monotonic: at }),
            _ => None,
        })
    };
    // A warm-up slice begins at this instant even if the engine is late, as on a busy machine.
    let events = open_at("warm-up", at);
    let epoch = events[0]["epoch_monotonic_ns"].as_u64().unwrap();
    let slice = events.iter().find(|event| event["event"] == "slice").unwrap();
    assert_eq!(epoch + slice["opened_ns"].as_u64().unwrap(), at.0);
    let interval = events.iter().find(|event| event["event"] == "interval").unwrap();
    let n =
        interval["latency_bins"].as_array().unwrap().iter().map(|bin| bin[1].as_u64().unwrap()).sum::<u64>();
    let ok =
        interval["kinds"].as_object().unwrap().values().map(|of| of["ok"].as_u64().unwrap()).sum::<u64>();
    assert_eq!(n, ok);
    let events = open_at("measure", at - Nanos(10_000_000_000));
    let failed = events.last().unwrap();
    assert_eq!((&failed["event"], &failed["stage"]), (&json!("failed"), &json!("drive")), "{failed}");
    assert!(failed["message"].as_str().unwrap().contains("after the agreed instant"), "{failed}");
}

fn the_end_of_the_warm_up_skips_a_slice_that_is_ready(server: &Database) {
    let (_, [part, _]) = whole_and_parts(server);
    let mut part = part;
    let slice = |role: &str| json!({"target": 0, "role": role, "duration_s": 3600.0, "transactions": 1});
    part["slices"] = json!([slice("warm-up"), slice("warm-up"), slice("measure")]);
    let events = drive_with(&part, &|event| match (event["event"].as_str(), event["slice"].as_u64()) {
        (Some("barrier"), _) => Some(Input::Continue),
        (Some("ready"), Some(1)) => Some(Input::Measure),
        (Some("ready"), Some(2)) => Some(Input::Stop),
        (Some("ready"), _) => {
            Some(Input::Open { at_monotonic: Clock::monotonic().epoch() + Nanos(1_000_000) })
        }
        _ => None,
    });
    let of = |name: &str| -> Vec<_> {
        events.iter().filter(|event| event["event"] == name).map(|event| event["slice"].clone()).collect()
    };
    assert_eq!((of("slice"), of("ready")), (vec![json!(0)], vec![json!(0), json!(1), json!(2)]));
    assert_eq!(events.last().unwrap()["left_out"], json!([1]));
}
