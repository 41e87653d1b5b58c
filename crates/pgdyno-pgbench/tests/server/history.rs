//! Transactions: the same seed gives the same rows in pgbench and pgdyno-pgbench.

use std::io;
use std::sync::mpsc;

use driver::{ClientId, End, User, Workload, WorkloadContext, erase};
use pgbench::{Pgbench as Ours, ScriptChoice};
use pgwire::conninfo;
use reactor::{Clock, Connection, Reactor};
use serde_json::{Value, json};

use super::Pgbench;

const ROWS: &str = "select tid, bid, aid, delta from pgbench_history order by ctid";
const BALANCES: &str = "select sum(abalance) from pgbench_accounts union all select sum(tbalance) from pgbench_tellers \
                        union all select sum(bbalance) from pgbench_branches";

fn initialise(pgbench: &Pgbench) {
    let output = pgbench.run(&["-i", "-q", "-s", "2"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Executes `transactions` of one client.
fn run_ours(pgbench: &Pgbench, workload: &Value, transactions: u32) {
    let workload = Ours::read(workload, 1, 1, 0).unwrap();
    let conninfo = conninfo::load("test", &[], &pgbench.database.by_socket()).unwrap();
    let mut user = workload.user(ClientId { client: 0, clients: 1, thread: 0, seed: 0 });
    let mut choice = ScriptChoice::default();
    let reactor = Reactor::new(Clock::monotonic()).unwrap();
    let run = async {
        let mut connection = Connection::connect(&reactor, &conninfo).await?;
        user.prepare(&mut connection).await?;
        for _ in 0..transactions {
            user.draw(&mut choice);
            user.attempt(&mut connection).await?;
        }
        Ok::<_, reactor::Error>(())
    };
    reactor.block_on(run).unwrap().unwrap();
}

/// A complete run of the driver.
fn drive(specification: &Value, out: &mut dyn io::Write) -> End {
    driver::run(&specification.to_string(), mpsc::channel(), out, &|workload, context| {
        let WorkloadContext { clients, threads, seed } = context;
        Ours::read(workload, clients, threads, seed).map(erase)
    })
}

#[test]
fn the_same_seed_gives_the_same_rows_as_pgbench_by_each_protocol() {
    let Some(pgbench) = Pgbench::find("history") else { return };
    initialise(&pgbench);
    let own = "\\set t random(1, 10 * :scale)\n\\set a random_zipfian(1, 1000, 1.5)\n\
               begin;\nselect count(*) as n from pgbench_branches \\gset\n\
               \\if :n > 1\ninsert into pgbench_history(tid, bid, aid, delta) values (:t, :n, :a, :client_id);\n\\endif\nend;";
    let path = pgbench.script("own.sql", own);
    let builtin = |name: &str| json!([{"builtin": name}]);
    let mixed = json!([{"name": "own", "text": own, "weight": 3}, {"builtin": "tpcb-like"}]);
    let cases: [(&str, Vec<&str>, Value); 3] = [
        ("tpcb-like", vec!["-b", "tpcb-like"], builtin("tpcb-like")),
        ("simple-update", vec!["-N"], builtin("simple-update")),
        ("mixed", vec!["-f", "", "-b", "tpcb-like"], mixed),
    ];
    for (name, options, scripts) in &cases {
        for protocol in ["simple", "extended", "prepared"] {
            pgbench.query("truncate pgbench_history");
            let own = format!("{path}@3");
            let mut arguments = vec!["-t", "60", "--random-seed", "4711", "-M", protocol];
            arguments
                .extend(options.iter().map(|option| if option.is_empty() { own.as_str() } else { option }));
            let output = pgbench.run(&arguments);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let real = pgbench.query(ROWS);
            pgbench.query("truncate pgbench_history");
            let workload = json!({"scripts": scripts, "protocol": protocol, "random_seed": 4711});
            run_ours(&pgbench, &workload, 60);
            let ours = pgbench.query(ROWS);
            assert_eq!(real.len(), 60);
            assert_eq!(ours, real, "{name}, {protocol}");
        }
    }
}

#[test]
fn a_driven_run_leaves_consistent_balances() {
    let Some(pgbench) = Pgbench::find("drive") else { return };
    initialise(&pgbench);
    let conninfo = pgbench.database.values();
    let specification = json!({
        "targets": [{"name": "a", "conninfo": conninfo}],
        "workload": {"scripts": [{"builtin": "tpcb-like"}, {"builtin": "select-only", "weight": 2}],
            "scale": null, "protocol": "prepared"},
        "clients": 4, "threads": 2, "seed": 1, "retries_max": 3,
        "slices": [{"target": 0, "role": "measure", "duration_s": 3600.0, "transactions": 100}],
        "discard_s": 0, "interval_s": 1, "connect_timeout_s": 10, "drain_timeout_s": 10});
    let mut out = Vec::new();
    let end = drive(&specification, &mut out);
    let shown = String::from_utf8_lossy(&out).into_owned();
    assert_eq!(end, End::Result, "{shown}");
    let result: Value = serde_json::from_str(shown.lines().last().unwrap()).unwrap();
    let totals = &result["targets"][0]["totals"];
    let (updates, reads) = (&totals["tpcb-like"], &totals["select-only"]);
    assert_eq!((&updates["failed"], &reads["failed"]), (&json!(0), &json!(0)), "{shown}");
    assert!(reads["ok"].as_u64() > Some(0), "{shown}");
    assert_eq!(pgbench.query("select count(*) from pgbench_history"), [updates["ok"].to_string()]);
    let sums = pgbench.query("select sum(delta) from pgbench_history");
    assert_eq!(pgbench.query(BALANCES), [sums[0].clone(), sums[0].clone(), sums[0].clone()]);
}

#[test]
fn a_database_without_the_tables_is_rejected_before_the_run() {
    let Some(pgbench) = Pgbench::find("no_tables") else { return };
    let conninfo = pgbench.database.values();
    let mut specification = json!({
        "targets": [{"name": "a", "conninfo": conninfo}],
        "workload": {"scripts": [{"builtin": "select-only"}], "protocol": "simple"},
        "clients": 1, "seed": 1, "retries_max": 0, "slices": [{"target": 0, "role": "measure", "duration_s": 0.2}],
        "discard_s": 0, "interval_s": 1, "connect_timeout_s": 10, "drain_timeout_s": 10});
    let mut out = Vec::new();
    assert_eq!(drive(&specification, &mut out), End::Failed);
    assert!(String::from_utf8_lossy(&out).contains("no rows in pgbench_branches"));
    // A custom script does not need the tables.
    specification["workload"]["scripts"] = json!([{"name": "one", "text": "select :scale;"}]);
    assert_eq!(drive(&specification, &mut io::sink()), End::Result);
}
