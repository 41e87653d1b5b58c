//! Complete runs: barriers, targets, limits, and lost servers.

use std::any::Any;
use std::fs;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{self, Sender};

use pgdyno_engine::drive::{self, Input};
use pgwire::conninfo::Conninfo;
use reactor::{Clock, Connection, Io, Reactor};
use serde_json::{Value, json};

use test_server::{Database, Server};

#[test]
fn whole_runs() {
    let Some(own) = Server::start("driving") else { return };
    let server = Database::create_on(own, "driving");
    execute(&server, "CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, abalance int)");
    execute(&server, "INSERT INTO pgbench_accounts VALUES (1, 0)");
    execute(&server, "CREATE DATABASE other TEMPLATE test_driving");
    a_failed_assertion_stops_the_run(&server);
    the_io_interfaces_have_the_same_results(&server);
    a_barrier_counts_what_was_executed(&server);
    a_connection_lost_between_slices_is_counted(&server);
    each_target_may_have_its_own_options(&server);
    transactions_limit_a_slice(&server);
    time_and_a_stop_end_a_slice_limited_by_transactions(&server);
    a_measure_command_ends_the_warm_up(&server);
    two_targets_are_driven_at_the_same_time(&server);
    slices_include_the_backlog_of_an_overload(&server);
    a_server_is_pinned_during_a_slice_and_unpinned(&server);
    an_invalid_workload_of_a_target_is_rejected_with_its_name(&server);
    a_lost_server_is_named(&server);
}

#[test]
fn other_workloads_than_tpcc_and_pgbench_cannot_have_a_ledger() {
    for kind in ["select-only", "sysbench", "linkbench", "insert"] {
        // It is rejected before a connection.
        let specification = json!({"targets": [{"name": "a", "conninfo": {"user": "u"}}],
            "workload": {"kind": kind, "ledger": {"path": "/dev/null", "key": 1, "slots": 1}},
            "clients": 1, "seed": 1, "retries_max": 0,
            "slices": [{"target": 0, "role": "measure", "duration_s": 0.1}],
            "discard_s": 0, "interval_s": 1, "connect_timeout_s": 10, "drain_timeout_s": 10});
        let events = drive(&specification, &|_| ());
        let failed = &events[0];
        assert_eq!((&failed["event"], &failed["stage"]), (&json!("failed"), &json!("specification")));
        assert!(failed["message"].as_str().unwrap().contains("can have a ledger"), "{failed}");
    }
}

fn the_io_interfaces_have_the_same_results(server: &Database) {
    let best = Io::Auto.resolve();
    for (io, expected) in [(json!("epoll"), json!(Io::Epoll)), (json!("auto"), json!(best))] {
        let mut specification = specification(server);
        specification["io"] = io;
        for slice in specification["slices"].as_array_mut().unwrap() {
            slice["duration_s"] = json!(3600.0);
            slice["transactions"] = json!(11);
        }
        let events = drive(&specification, &|_| ());
        let result = events.last().unwrap();
        assert_eq!((&result["stopped"], &result["driver"]["io"]), (&json!("done"), &expected));
        for target in result["targets"].as_array().unwrap() {
            let totals = &target["totals"]["select"];
            assert_eq!((&totals["ok"], &totals["failed"]), (&json!(22), &json!(0)));
            assert_eq!(target["connections_lost"], 0);
        }
    }
}

fn a_barrier_counts_what_was_executed(server: &Database) {
    let mut specification = specification(server);
    specification["rate"] = json!({"per_s": 1_000_000.0, "arrivals": "constant"});
    let events = drive(&specification, &|_| ());
    let at = |name: &str| events.iter().find(|event| event["name"] == name).unwrap();
    let totals = &events.last().unwrap()["targets"][0]["totals"]["select"];
    let count = |key: &str| totals[key].as_u64().unwrap();
    assert!(count("skipped") > 0, "the loop is overloaded: {totals}");
    assert_eq!(at("end")["totals"][0]["transactions"], count("ok") + count("rolled_back"));
}

/// A custom script.
fn script(name: &str, text: &str, protocol: &str) -> Value {
    let scripts = json!([{"name": name, "text": text}]);
    json!({"kind": "pgbench", "protocol": protocol, "scale": 1, "scripts": scripts})
}

/// Three targets: the run's options; more clients with another protocol in an open loop; a single one that
/// always fails.
fn each_target_may_have_its_own_options(server: &Database) {
    let mut specification = specification(server);
    specification["threads"] = json!(2);
    let conninfo = server.values();
    specification["targets"] = json!([{"name": "a", "conninfo": conninfo},
        {"name": "b", "conninfo": conninfo, "clients": 3, "rate": {"per_s": 1000.0, "arrivals": "constant"},
            "workload": script("two", "select 1;\nselect 2;", "prepared")},
        {"name": "c", "conninfo": conninfo, "clients": 1, "workload": script("none", "select 1/0;", "simple")}]);
    // In a closed loop the number of transactions is certain; in an open one the number due.
    let bound = |target: u32, role: &str| json!({"target": target, "role": role, "duration_s": 3600.0, "transactions": 11});
    let timed = json!({"target": 1, "role": "measure", "duration_s": 0.1});
    specification["slices"] = json!([bound(0, "warm-up"), bound(2, "measure"), timed, bound(0, "measure")]);
    let events = drive(&specification, &|_| ());
    let connected = events.iter().filter(|event| event["event"] == "connected");
    assert_eq!(connected.map(|event| event["clients"].clone()).collect::<Vec<_>>(), [2, 3, 1]);
    let of_slice = |slice: &Value| {
        let kinds = slice["kinds"].as_object().unwrap();
        (slice["target"].as_u64().unwrap(), kinds.keys().cloned().collect::<Vec<_>>())
    };
    let slices = events.iter().filter(|event| event["event"] == "slice").map(of_slice);
    let select = vec!["select".to_owned()];
    let expected =
        [(0, select.clone()), (2, vec!["none".to_owned()]), (1, vec!["two".to_owned()]), (0, select)];
    assert_eq!(slices.collect::<Vec<_>>(), expected);
    let result = events.last().unwrap();
    assert_eq!(result["stopped"], "done");
    let count = |target: usize, kind: &str, key: &str| {
        result["targets"][target]["totals"][kind][key].as_u64().unwrap()
    };
    assert!(count(0, "select", "ok") > 20 && count(0, "select", "failed") == 0, "{result}");
    // 0.1 s at 1000/s, from three clients in two threads.
    assert_eq!(count(1, "two", "ok") + count(1, "two", "skipped"), 100);
    assert_eq!(count(1, "two", "failed"), 0);
    assert!(count(2, "none", "failed") > 10 && count(2, "none", "ok") == 0, "{result}");
    let end = events.iter().find(|event| event["name"] == "end").unwrap();
    assert_eq!(end["totals"][2]["transactions"], 0, "failed transactions were not executed");
}

fn slices(events: &[Value]) -> impl Iterator<Item = &Value> {
    events.iter().filter(|event| event["event"] == "slice")
}

/// Two targets with different clients and protocols. The server also counts the transactions of the second one.
fn transactions_limit_a_slice(server: &Database) {
    execute(server, "CREATE TABLE done (client int)");
    let mut specification = specification(server);
    specification["threads"] = json!(1);
    specification["discard_s"] = json!(50.0);
    specification["targets"][0]["workload"] = script("one", "select 1;", "extended");
    specification["targets"][1] = json!({"name": "b", "conninfo": server.values(), "clients": 3, "threads": 2,
        "workload": script("insert", "insert into done values (:client_id);", "prepared")});
    let slice = |target: u32, role: &str, transactions: u64| json!({"target": target, "role": role, "duration_s": 3600.0, "transactions": transactions});
    specification["slices"] =
        json!([slice(1, "warm-up", 1), slice(0, "measure", 200), slice(1, "measure", 70)]);
    let events = drive(&specification, &|_| ());
    let of_slice = |slice: &Value| {
        let counts = slice["kinds"].as_object().unwrap().values().next().unwrap();
        let [opened, counted, closed, drained] = ["opened_ns", "counted_from_ns", "closed_ns", "drained_ns"]
            .map(|key| slice[key].as_u64().unwrap());
        assert!(opened == counted && counted < closed && closed <= drained, "{slice}");
        (slice["ended_by"].as_str().unwrap().to_owned(), counts["ok"].as_u64().unwrap())
    };
    assert_eq!(events[0]["threads"], 2);
    let expected = [3, 400, 210].map(|ok| ("transactions".to_owned(), ok));
    assert_eq!(slices(&events).map(of_slice).collect::<Vec<_>>(), expected);
    let result = events.last().unwrap();
    assert_eq!((&result["stopped"], &result["unfinished"]), (&json!("done"), &json!([])));
    let ok = |target: usize, part: &str| &result["targets"][target][part];
    assert_eq!(ok(0, "totals")["one"]["ok"], 400);
    assert_eq!(
        (&ok(1, "totals")["insert"]["ok"], &ok(1, "kinds")["insert"]["counts"]["ok"]),
        (&json!(213), &json!(210))
    );
    let rows = ask(
        server,
        "SELECT count(*), min(n), max(n) FROM (SELECT count(*) n FROM done GROUP BY client) AS c",
    );
    assert_eq!(rows[0], [Some("3".to_owned()), Some("71".to_owned()), Some("71".to_owned())]);
}

fn time_and_a_stop_end_a_slice_limited_by_transactions(server: &Database) {
    let mut specification = specification(server);
    let slice = |duration_s: f64| json!({"target": 0, "role": "measure", "duration_s": duration_s, "transactions": 1_000_000_000});
    specification["interval_s"] = json!(0.05);
    specification["discard_s"] = json!(0.0);
    specification["barriers"] = json!(false);
    specification["slices"] = json!([slice(0.1), slice(90.0 * 86_400.0)]);
    let events = drive_with(&specification, &|event| {
        (event["event"] == "interval" && event["slice"] == 1).then_some(Input::Stop)
    });
    let ended: Vec<_> = slices(&events).map(|slice| slice["ended_by"].as_str().unwrap()).collect();
    assert_eq!(ended, ["time", "stop"]);
    let result = events.last().unwrap();
    assert_eq!((&result["stopped"], &result["unfinished"]), (&json!("stop"), &json!([0, 1])));
}

/// The command is given in the second of three slices of an hour each, then at the barrier and within the
/// measured part, where it has no effect.
fn a_measure_command_ends_the_warm_up(server: &Database) {
    let mut specification = specification(server);
    let slice = |target: u32, role: &str, duration_s: f64| json!({"target": target, "role": role, "duration_s": duration_s});
    specification["interval_s"] = json!(0.02);
    specification["slices"] = json!([
        slice(0, "warm-up", 0.1),
        slice(1, "warm-up", 3600.0),
        slice(0, "warm-up", 3600.0),
        slice(0, "measure", 0.1),
        slice(1, "warm-up", 0.1),
        slice(1, "measure", 0.1)
    ]);
    let events = drive_with(&specification, &|event| match event["event"].as_str()? {
        "barrier" => Some(Input::Continue),
        "interval" if event["slice"] != 0 => Some(Input::Measure),
        _ => None,
    });
    let ended: Vec<_> = slices(&events).map(|slice| (&slice["slice"], &slice["ended_by"])).collect();
    let expected = [(0, "time"), (1, "measure"), (3, "time"), (4, "time"), (5, "time")];
    let expected = expected.map(|(slice, ended_by)| (json!(slice), json!(ended_by)));
    assert_eq!(ended, expected.iter().map(|(slice, ended_by)| (slice, ended_by)).collect::<Vec<_>>());
    let result = events.last().unwrap();
    assert_eq!((&result["stopped"], &result["left_out"]), (&json!("done"), &json!([2])));
}

/// The second target is in an open loop, and has a slice alone.
fn two_targets_are_driven_at_the_same_time(server: &Database) {
    let mut specification = specification(server);
    specification["targets"][1]["rate"] = json!({"per_s": 1000.0, "arrivals": "constant"});
    specification["interval_s"] = json!(0.02);
    let pair = json!({"targets": [0, 1], "role": "measure", "duration_s": 0.1});
    specification["slices"] = json!([pair, {"target": 1, "role": "measure", "duration_s": 0.1}, pair]);
    let events = drive(&specification, &|_| ());
    assert_eq!(events[0]["threads"], 2);
    let all: Vec<_> = slices(&events).collect();
    assert_eq!(all.iter().map(|slice| &slice["target"]).collect::<Vec<_>>(), [0, 1, 1, 0, 1]);
    for pair in [[all[0], all[1]], [all[3], all[4]]] {
        for key in ["slice", "opened_ns", "counted_from_ns", "closed_ns"] {
            assert_eq!(pair[0][key], pair[1][key], "{key}");
        }
        assert!(pair.iter().all(|slice| slice["swap_ns"] == 0), "{pair:?}");
    }
    let result = events.last().unwrap();
    let measured =
        |target: usize| result["targets"][target]["kinds"]["select"]["counts"]["ok"].as_u64().unwrap();
    let counted = |target: u64| {
        let own = all.iter().filter(|slice| slice["target"] == target);
        own.map(|slice| slice["kinds"]["select"]["ok"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!([measured(0), measured(1)], [counted(0), counted(1)]);
    assert!(result["targets"][0]["totals"]["select"]["ok"].as_u64() > Some(0), "{result}");
    // The CPU time of the threads of both does not exceed that of the driver.
    let cpu_ns = |of: &Value| of["user"].as_u64().unwrap() + of["system"].as_u64().unwrap();
    let in_slices = all.iter().map(|slice| cpu_ns(&slice["driver_cpu_ns"]));
    assert!(in_slices.sum::<u64>() <= cpu_ns(&result["driver"]["cpu_ns"]));
    let ns = |slice: &Value, key: &str| slice[key].as_u64().unwrap();
    let driven = all.iter().filter(|slice| slice["target"] == 1);
    let driven_ns: u64 = driven.map(|slice| ns(slice, "drained_ns") - ns(slice, "opened_ns")).sum();
    let totals = &result["targets"][1]["totals"]["select"];
    // 0.3 s at 1000/s, and those that became due while slices were drained.
    let due = totals["ok"].as_u64().unwrap() + totals["skipped"].as_u64().unwrap();
    assert!((300..=driven_ns / 1_000_000 + 1).contains(&due), "{driven_ns}: {totals}");
}

/// One client at 300% of its capacity at most, in slices of 0.5 s that alternate with another target: the queue
/// grows from slice to slice, as in one long slice. The latencies are compared in the driver's tests, which have a
/// clock of their own.
fn slices_include_the_backlog_of_an_overload(server: &Database) {
    let mut specification = specification(server);
    specification["discard_s"] = json!(0.05);
    specification["targets"][0] = json!({"name": "a", "conninfo": server.values(), "clients": 1,
        "rate": {"per_s": 60.0, "arrivals": "constant"}, "workload": script("slow", "select pg_sleep(0.05);", "simple")});
    let slice =
        |target: u32, duration_s: f64| json!({"target": target, "role": "measure", "duration_s": duration_s});
    let mut drive_slow = |slices: Vec<Value>| {
        specification["slices"] = json!(slices);
        let events = drive(&specification, &|_| ());
        events.last().unwrap()["targets"][0]["kinds"]["slow"].clone()
    };
    let whole = drive_slow(vec![slice(0, 1.5)]);
    let slices = drive_slow((0..3).flat_map(|_| [slice(0, 0.5), slice(1, 0.1)]).collect());
    // Skipped transactions are counted with their waiting time. In 1.5 s at most 33 are sent, so that the one due at
    // 0.57 s is not. A queue of a single slice has waited for less than 0.5 s.
    for kind in [&whole, &slices] {
        let skipped = bins(kind, "skipped");
        assert_eq!(
            skipped.iter().map(|(_, n)| n).sum::<u64>(),
            kind["counts"]["skipped"].as_u64().unwrap(),
            "{kind}"
        );
        assert!(skipped.last().unwrap().0 > 700_000_000, "{kind}");
    }
}

fn bins(kind: &Value, measure: &str) -> Vec<(u64, u64)> {
    serde_json::from_value(kind["histograms"][measure].clone()).unwrap()
}

/// All its processes, mainly the backends of the driver.
fn a_server_is_pinned_during_a_slice_and_unpinned(server: &Database) {
    let postmaster = server.server.postmaster_pid();
    let all = cores_of(postmaster).unwrap();
    let core = all.split(['-', ',']).next().unwrap().to_owned();
    let mut specification = specification(server);
    let one = json!([[core.parse::<u32>().unwrap()]]);
    specification["targets"] =
        json!([{"name": "a", "conninfo": server.values(), "postmaster_pid": postmaster}]);
    specification["slices"] = json!([{"target": 0, "role": "warm-up", "duration_s": 0.05, "cores": one},
        {"target": 0, "role": "measure", "duration_s": 0.1, "cores": one}]);
    let events = drive(&specification, &|_| {
        let pids = ask(server, "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()");
        // The session of an earlier query may have exited.
        let found = pids.into_iter().flatten().flatten().filter_map(|pid| cores_of(pid.parse().unwrap()));
        let found: Vec<_> = found.collect();
        assert!(found.len() > 2 && found.iter().all(|cores| *cores == core), "{core}: {found:?}");
    });
    let result = events.last().unwrap();
    assert_eq!(result["stopped"], "done", "{result}");
    assert!(slices(&events).all(|slice| slice["swap_ns"].as_u64() > Some(0)));
    assert_eq!(cores_of(postmaster).as_ref(), Some(&all));
    let checkpointer = ask(server, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'");
    assert_eq!(cores_of(checkpointer[0][0].as_ref().unwrap().parse().unwrap()), Some(all));
}

/// In the kernel's format: `0-1`; `None` for a process that has exited.
fn cores_of(pid: u32) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    Some(line?.trim().to_owned())
}

fn an_invalid_workload_of_a_target_is_rejected_with_its_name(server: &Database) {
    let mut specification = specification(server);
    specification["targets"][1]["workload"] = json!({"kind": "select-only", "accounts": 0});
    let events = drive(&specification, &|_| ());
    let failed = &events[0];
    assert_eq!((&failed["event"], &failed["stage"]), (&json!("failed"), &json!("specification")));
    assert!(failed["message"].as_str().unwrap().starts_with("target b: workload: accounts"), "{failed}");
}

/// As after a crash recovery of the server before the next slice.
fn a_connection_lost_between_slices_is_counted(server: &Database) {
    let mut specification = specification(server);
    // Each client uses its connection, also if the machine stalls.
    specification["slices"][1]["duration_s"] = json!(3600.0);
    specification["slices"][1]["transactions"] = json!(3);
    let events = drive(&specification, &|name| {
        if name == "measure" {
            let end = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = 'other'";
            execute(server, end);
        }
    });
    let result = events.last().unwrap();
    assert_eq!((&result["stopped"], &result["lost"]), (&json!("done"), &Value::Null));
    assert_eq!(result["targets"][0]["connections_lost"], 0);
    assert_eq!(result["targets"][1]["connections_lost"], 2);
}

fn a_lost_server_is_named(server: &Database) {
    let mut specification = specification(server);
    // Longer than the driver tries to reconnect, which ends the run.
    specification["slices"][1]["duration_s"] = json!(60.0);
    let events = drive(&specification, &|name| {
        if name == "measure" {
            execute(server, "ALTER DATABASE other ALLOW_CONNECTIONS false");
            let end = "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = 'other'";
            execute(server, end);
        }
    });
    let result = events.last().unwrap();
    assert_eq!((&result["stopped"], &result["lost"]), (&json!("server-lost"), &json!("b")));
}

/// Two clients on each of two databases, 0.1 s each, with barriers.
pub fn specification(server: &Database) -> Value {
    let conninfo = server.values();
    let slice = |target: u32| json!({"target": target, "role": "measure", "duration_s": 0.1});
    json!({"targets": [{"name": "a", "conninfo": conninfo},
            {"name": "b", "conninfo": server.server.values("other")}],
        "workload": {"kind": "select-only", "accounts": 1}, "clients": 2, "threads": 1, "seed": 1,
        "pacing": "none", "rate": null, "retries_max": 0, "slices": [slice(0), slice(1)], "discard_s": 0.05,
        "interval_s": 1.0, "barriers": true, "connect_timeout_s": 60.0, "drain_timeout_s": 60.0})
}

/// All events of a run. `at_barrier` is called at each barrier before it is passed.
pub fn drive(specification: &Value, at_barrier: &dyn Fn(&str)) -> Vec<Value> {
    drive_with(specification, &|event| {
        (event["event"] == "barrier").then(|| {
            at_barrier(event["name"].as_str().unwrap_or_default());
            Input::Continue
        })
    })
}

/// All events of a run. `answer` returns the commands that follow them. If it panics, the run is stopped first,
/// because the threads of the driver would be joined forever.
pub fn drive_with(specification: &Value, answer: &dyn Fn(&Value) -> Option<Input>) -> Vec<Value> {
    let (sender, receiver) = mpsc::channel();
    let mut parent = Parent { orders: sender.clone(), answer, events: Vec::new(), panic: None };
    drive::run(&specification.to_string(), (sender, receiver), &mut parent);
    parent.panic.map_or(parent.events, |panic| resume_unwind(panic))
}

fn a_failed_assertion_stops_the_run(server: &Database) {
    let mut specification = specification(server);
    specification["slices"][0]["duration_s"] = json!(3600.0);
    specification["interval_s"] = json!(0.1);
    let failing = |event: &Value| -> Option<Input> {
        assert_ne!(event["event"], "interval", "as an assertion of a test that fails");
        (event["event"] == "barrier").then_some(Input::Continue)
    };
    let panic = catch_unwind(AssertUnwindSafe(|| drive_with(&specification, &failing)));
    assert!(panic.unwrap_err().downcast_ref::<String>().unwrap().contains("that fails"));
}

/// Reads events, each of which is written at once, and responds with commands.
struct Parent<'a> {
    orders: Sender<Input>,
    answer: &'a dyn Fn(&Value) -> Option<Input>,
    events: Vec<Value>,
    panic: Option<Box<dyn Any + Send>>,
}

impl Write for Parent<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let event: Value = serde_json::from_slice(line)?;
        let order = catch_unwind(AssertUnwindSafe(|| (self.answer)(&event))).unwrap_or_else(|panic| {
            self.panic.get_or_insert(panic);
            Some(Input::Stop)
        });
        if let Some(order) = order {
            let _ = self.orders.send(order);
        }
        self.events.push(event);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub fn execute(server: &Database, sql: &str) {
    ask(server, sql);
}

pub fn ask(server: &Database, sql: &str) -> Vec<Vec<Option<String>>> {
    let conninfo = Conninfo::parse("test", &[], &server.by_socket(), &|_| None, None).unwrap();
    let reactor = Reactor::new(Clock::monotonic()).unwrap();
    let session = async { Connection::connect(&reactor, &conninfo).await?.simple(sql).await };
    reactor.block_on(session).unwrap().unwrap()
}
