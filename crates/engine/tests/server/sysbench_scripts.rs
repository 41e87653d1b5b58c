//! sysbench scripts in the driver: counts and errors.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use pgdyno_engine::load::{self, Specification};
use serde_json::{Value, json};

use super::driving::{ask, drive, execute, specification};
use test_server::Database;

const ROWS: &str =
    "INSERT INTO sbtest1 SELECT i, i, repeat('c', 120), repeat('p', 60) FROM generate_series(1, 1000) i";

#[test]
fn sysbench_scripts() {
    let Some(server) = Database::create("sysbench") else { return };
    execute(&server, "CREATE TABLE sbtest1 (id serial PRIMARY KEY, k int, c char(120), pad char(60))");
    execute(&server, ROWS);
    a_stock_script_is_driven_and_its_queries_are_counted(&server);
    the_same_seed_gives_the_same_statements(&server);
    errors_that_restart_an_event_are_counted_by_kind(&server);
    other_errors_fail_the_event_by_their_kind(&server);
    a_lost_connection_restarts_the_event(&server);
    an_invalid_script_is_rejected(&server);
    an_event_that_never_succeeds_ends_with_its_slice(&server);
    a_stop_cancels_the_statements_of_a_preparation(&server);
}

#[test]
fn a_script_that_fails_when_it_is_loaded_is_reported_by_the_program() {
    // Errors of callbacks and of the time limit unwind through Lua's C code, which depends on the profile.
    let scripts = [
        ("sysbench.rand.uniform('x', 1)", "error converting Lua string to f64"),
        ("pcall(loadfile) sysbench.histogram.new(-1, 0, 0)", "is not a histogram"),
        ("while true do end", "computed for more than 0.05 s"),
        ("while true do pcall(function() while true do end end) end", "computed for more than 0.05 s"),
    ];
    for (text, expected) in scripts {
        let mut workload = own(text);
        if text.contains("while true") {
            workload["compute_limit_s"] = json!(0.05);
        }
        let mut program = Command::new(env!("CARGO_BIN_EXE_pgdyno-engine"));
        program.arg("check").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = program.spawn().unwrap();
        writeln!(child.stdin.take().unwrap(), "{}", json!({"workload": workload})).unwrap();
        let output = child.wait_with_output().unwrap();
        let event: Value = serde_json::from_slice(&output.stdout).expect(text);
        assert_eq!((output.status.code(), &event["event"]), (Some(2), &json!("failed")), "{text}");
        assert!(event["message"].as_str().unwrap().contains(expected), "{event}");
    }
}

#[test]
fn a_script_with_access_to_files_cannot_disturb_the_messages_of_the_program() {
    let Some(server) = Database::create("sysbench_streams") else { return };
    let mut workload = own("function event()
            io.write('{}\\n') io.stdout:write('{}\\n') io.stdout:flush() os.execute('echo {}')
            assert(io.read() == nil and io.stdin:read() == nil)
        end");
    workload["allow_os"] = json!(true);
    let mut program = Command::new(env!("CARGO_BIN_EXE_pgdyno-engine"));
    program.arg("drive").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = program.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "{}", events(&server, workload, 3)).unwrap();
    let mut last = Value::Null;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert!(event["event"].is_string(), "{event}");
        if event["event"] == "barrier" {
            writeln!(input, "{}", json!({"do": "continue"})).unwrap();
        }
        last = event;
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &last["event"]), (Some(0), &json!("result")), "{last}");
    assert_eq!(last["targets"][0]["totals"]["event"]["ok"], 6, "{last}");
    assert_eq!(String::from_utf8_lossy(&output.stderr).matches("{}").count(), 18);
}

/// A specification with this number of events for each of 2 clients.
fn events(server: &Database, workload: Value, transactions: u64) -> Value {
    let mut specification = specification(server);
    specification["targets"] = json!([{"name": "a", "conninfo": server.values()}]);
    specification["slices"] =
        json!([{"target": 0, "role": "measure", "duration_s": 60.0, "transactions": transactions}]);
    specification["workload"] = workload;
    specification
}

fn own(text: &str) -> Value {
    json!({"kind": "sysbench", "script": {"name": "own.lua", "text": text}})
}

fn result(server: &Database, workload: Value, transactions: u64) -> Value {
    let mut events = drive(&events(server, workload, transactions), &|_| ());
    let last = events.pop().unwrap();
    assert_eq!(last["event"], "result", "{last}");
    last["targets"][0].clone()
}

fn a_stock_script_is_driven_and_its_queries_are_counted(server: &Database) {
    let workload = json!({"kind": "sysbench", "script": {"stock": "oltp_read_write"},
        "options": {"table_size": "1000", "point_selects": "3", "rand-type": "uniform"}});
    let target = result(server, workload, 20);
    let totals = &target["totals"]["event"];
    assert_eq!((&totals["ok"], &totals["failed"]), (&json!(40), &json!(0)));
    let counters = &target["counters"];
    let count = |name: &str| counters[name].as_u64().unwrap();
    // Both clients may change one row at the same time. A restarted event repeats its seven reads.
    let restarts = ["restarts_23505", "restarts_40001", "restarts_40P01"].map(count).iter().sum::<u64>();
    assert_eq!(count("queries_read"), (40 + restarts) * 7, "{counters}");
    let others = count("queries_write") + count("queries_other");
    assert!(others >= 40 * 6 && (others == 40 * 6 || restarts > 0), "{counters}");
}

fn the_same_seed_gives_the_same_statements(server: &Database) {
    execute(server, "CREATE TABLE drawn (run int, client int, n int, value text)");
    let script = "
        function thread_init() con = sysbench.sql.driver():connect() end
        local n = 0
        function event()
            n = n + 1
            local value = sysbench.rand.string('@@@') .. sysbench.rand.default(1, 1000000)
            con:query(string.format(\"INSERT INTO drawn VALUES (%d, %d, %d, '%s')\", sysbench.opt.run, sysbench.tid, n, value))
        end
        sysbench.cmdline.options = { run = { 'Run', 0 } }";
    for (run, seed) in [("1", 5), ("2", 5), ("3", 6)] {
        let mut workload = own(script);
        workload["options"] = json!({"run": run});
        workload["random_seed"] = json!(seed);
        result(server, workload, 10);
    }
    let of_run = |run: u32| {
        ask(server, &format!("SELECT client, n, value FROM drawn WHERE run = {run} ORDER BY 1, 2"))
    };
    assert_eq!(of_run(1).len(), 20);
    assert_eq!(of_run(1), of_run(2));
    assert_ne!(of_run(1), of_run(3));
}

fn errors_that_restart_an_event_are_counted_by_kind(server: &Database) {
    execute(server, "CREATE TABLE once (i int PRIMARY KEY)");
    let script = "
        function thread_init() con = sysbench.sql.driver():connect() end
        local n = 0
        function event()
            n = n + 1
            con:query('BEGIN')
            con:query('INSERT INTO once VALUES (' .. (sysbench.tid * 1000 + math.floor(n / 2)) .. ')')
            con:query('COMMIT')
        end";
    let target = result(server, own(script), 5);
    assert_eq!(
        (&target["totals"]["event"]["ok"], &target["totals"]["event"]["retried"]),
        (&json!(10), &json!(6))
    );
    // For each client, every second insert repeats the key of the one before: 5 events need 3 restarts.
    assert_eq!(target["counters"]["restarts_23505"], 6);
    assert_eq!(target["counters"]["restarts_40001"], 0);
}

fn other_errors_fail_the_event_by_their_kind(server: &Database) {
    let cases = [
        ("con:query('SELECT 1 / 0')", "22012"),
        ("con:query('BEGIN') con:query('SELECT * FROM missing')", "42P01"),
        ("error('boom')", "workload"),
        ("return true", "workload"),
        ("con:disconnect() con:query('SELECT 1')", "workload"),
        ("sysbench.sql.driver():connect()", "workload"),
        ("os.execute('true')", "workload"),
    ];
    for (body, kind) in cases {
        let script = format!(
            "function thread_init() con = sysbench.sql.driver():connect() end
             local n = 0
             function event() n = n + 1 if n == 2 then {body} end end"
        );
        let target = result(server, own(&script), 2);
        let event = &target["kinds"]["event"];
        assert_eq!(event["failures"][kind], 2, "{body}: {event}");
        assert_eq!(target["totals"]["event"]["ok"], 2, "{body}");
    }
}

fn a_lost_connection_restarts_the_event(server: &Database) {
    execute(server, "CREATE SEQUENCE events");
    let script = "
        function thread_init()
            con = sysbench.sql.driver():connect()
            s = con:prepare(\"SELECT pg_terminate_backend(pg_backend_pid()) WHERE nextval('events') = 5\")
        end
        function event() s:execute() end";
    let target = result(server, own(script), 6);
    assert_eq!(target["connections_lost"], 1);
    let totals = &target["totals"]["event"];
    assert_eq!((&totals["ok"], &totals["failed"]), (&json!(11), &json!(1)));
}

fn an_event_that_never_succeeds_ends_with_its_slice(server: &Database) {
    execute(server, "CREATE TABLE taken (i int PRIMARY KEY)");
    execute(server, "INSERT INTO taken VALUES (1)");
    let insert = "con:query('INSERT INTO taken VALUES (1)')";
    let of_script = "error({errcode = sysbench.error.RESTART_EVENT})";
    // A hook ignores every error, also that of the connection that it has ended.
    let ends = "con:query('SELECT pg_terminate_backend(pg_backend_pid())')";
    for (body, why) in [(insert, "23505"), (of_script, "workload"), (ends, "57P01")] {
        let script = format!(
            "sysbench.hooks.sql_error_ignorable = function() return true end
             function thread_init() con = sysbench.sql.driver():connect() end
             function event() {body} end"
        );
        let mut specification = events(server, own(&script), 1);
        specification["slices"] = json!([{"target": 0, "role": "measure", "duration_s": 0.2}]);
        specification["drain_timeout_s"] = json!(3600.0);
        let events = drive(&specification, &|_| ());
        let target = &events.last().unwrap()["targets"][0];
        let event = &target["kinds"]["event"];
        assert_eq!(event["counts"]["ok"], 0, "{event}");
        assert_ne!(event["failures"].get(why), None, "{event}");
        if why == "57P01" {
            continue;
        }
        assert_eq!(event["failures"][why], 2, "both clients: {event}");
        // Also if the slice closes during the first attempt, as on a machine that stalls.
        assert!(target["totals"]["event"]["retried"].as_u64().unwrap() > 0, "{event}");
        let reported = events.iter().find(|one| one["event"] == "error").unwrap();
        assert_eq!(reported["sqlstate"].as_str().unwrap_or("workload"), why);
        let counted = target["counters"]["restarts_23505"].as_u64().unwrap();
        let tries = target["totals"]["event"]["retried"].as_u64().unwrap() + 2;
        assert_eq!(counted, if why == "23505" { tries } else { 0 });
    }
}

fn an_invalid_script_is_rejected(server: &Database) {
    let mut unknown = own("function event() end sysbench.cmdline.options = { a = { 'A', 1 } }");
    unknown["options"] = json!({"b": "1"});
    let cases = [
        (own("function event( end"), "own.lua:1: "),
        (own("function prepare() end"), "own.lua has no function event()"),
        (own("function event() end function thread_run() end"), "own.lua defines thread_run()"),
        (json!({"kind": "sysbench", "script": {"stock": "oltp"}}), "there is no stock script oltp"),
        (unknown, "invalid option: --b=1"),
    ];
    for (workload, expected) in cases {
        let events = drive(&events(server, workload, 1), &|_| ());
        let message = events.last().unwrap()["message"].as_str().unwrap().to_owned();
        assert!(message.starts_with("workload: ") && message.contains(expected), "{message}");
    }
}

fn a_stop_cancels_the_statements_of_a_preparation(server: &Database) {
    let script = "function prepare() sysbench.sql.driver():connect():query('SELECT pg_sleep(600)') end";
    let workload = json!({"kind": "sysbench-script", "script": {"name": "own.lua", "text": script}});
    let specification = json!({"conninfo": server.values(), "workload": workload, "seed": 1, "connections": 1,
        "into_existing": true});
    let specification = Specification::read(&specification.to_string()).unwrap();
    let sleeping = || {
        let sql = "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND query = 'SELECT pg_sleep(600)'";
        !ask(server, sql).is_empty()
    };
    let stop = AtomicBool::new(false);
    let failed = thread::scope(|scope| {
        let loading = scope.spawn(|| load::run(&specification, &stop, &mut |_| ()));
        while !sleeping() && !loading.is_finished() {}
        stop.store(true, Relaxed);
        loading.join().unwrap().unwrap_err()
    });
    assert_eq!((failed.message.as_str(), sleeping()), ("stopped", false));
}
