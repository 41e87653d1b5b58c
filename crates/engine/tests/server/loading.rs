//! Loader: replaced and preserved objects, cleanup, and a damaged dataset.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use loader::LoadError;
use pgdyno_engine::load::{self, Specification};
use serde_json::{Value, json};

use super::driving::{self, ask, drive};
use test_server::Database;

const OURS: &str =
    "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
    UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace ORDER BY 1";

/// After creation of this function, no row fits into the table of the ownership marker.
const NO_MARK: &str = "
    CREATE FUNCTION pg_catalog.refuse_mark() RETURNS event_trigger LANGUAGE plpgsql AS
        'BEGIN ALTER TABLE public.pgdyno_dataset DROP COLUMN IF EXISTS c_load; END';
    CREATE EVENT TRIGGER refuse_mark ON ddl_command_end WHEN TAG IN ('CREATE FUNCTION')
        EXECUTE PROCEDURE pg_catalog.refuse_mark()";

/// After creation of this function, no index can be created, and dropping a table takes 20 s.
const NO_INDEX: &str = "
    CREATE FUNCTION refuse_or_wait() RETURNS event_trigger LANGUAGE plpgsql AS
        'BEGIN IF tg_tag = ''ALTER TABLE'' THEN RAISE ''no index''; END IF; PERFORM pg_sleep(20); END';
    CREATE EVENT TRIGGER refuse_or_wait ON ddl_command_start WHEN TAG IN ('ALTER TABLE', 'DROP TABLE')
        EXECUTE PROCEDURE refuse_or_wait()";

fn load(server: &Database) -> Result<(), LoadError> {
    let specification = json!({"conninfo": server.values(), "workload": {"kind": "tpcc", "warehouses": 1},
        "seed": 1, "connections": 2, "into_existing": true});
    let specification = Specification::read(&specification.to_string()).unwrap();
    load::run(&specification, &AtomicBool::new(false), &mut |_| ())
}

fn execute(server: &Database, sql: &str) -> Vec<String> {
    ask(server, sql).into_iter().flatten().flatten().collect()
}

/// Result of this number of New-Orders by statements.
fn new_orders(server: &Database, transactions: u64) -> Value {
    let mut specification = driving::specification(server);
    specification["targets"].as_array_mut().unwrap().truncate(1);
    specification["workload"] = json!({"kind": "tpcc", "calls": "statements", "pipeline": false,
        "isolation": "read committed",
        "mix": {"new_order": 1, "payment": 0, "order_status": 0, "delivery": 0, "stock_level": 0}});
    specification["clients"] = json!(1);
    specification["slices"] =
        json!([{"target": 0, "role": "measure", "duration_s": 3600.0, "transactions": transactions}]);
    drive(&specification, &|_| ()).pop().unwrap()
}

#[test]
fn a_load_replaces_only_tables_of_pgdyno() {
    let Some(server) = Database::create("loading") else { return };
    an_empty_table_of_the_user_is_not_replaced(&server);
    a_function_of_the_user_is_not_replaced(&server);
    a_load_that_cannot_write_its_marker_cleans_up(&server);
    load(&server).unwrap();
    the_counter_of_new_orders_counts_their_commits(&server);
    a_damaged_dataset_is_not_counted_as_rollbacks_by_design(&server);
    timeouts_of_the_database_do_not_apply_to_a_load(&server);
    assert_eq!(execute(&server, "SELECT count(*) FROM item"), ["100000"], "an earlier load is replaced");
}

#[test]
fn a_stop_ends_the_wait_for_cleaning_up() {
    let Some(server) = Database::create("cleaning_up") else { return };
    execute(&server, NO_INDEX);
    let workload = json!({"kind": "insert", "rows": 1000, "tables": 1, "indexes": false});
    let specification = json!({"conninfo": server.values(), "workload": workload, "seed": 1, "connections": 1,
        "into_existing": false});
    let specification = Specification::read(&specification.to_string()).unwrap();
    let waits = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND query LIKE 'DROP TABLE%'";
    let stop = AtomicBool::new(false);
    let failed = thread::scope(|scope| {
        let loading = scope.spawn(|| load::run(&specification, &stop, &mut |_| ()));
        while execute(&server, waits).is_empty() && !loading.is_finished() {
            thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Relaxed);
        loading.join().unwrap().unwrap_err()
    });
    assert!(failed.message.contains("no index"), "{failed}");
    let left = "the tables that it filled are still there: cannot take back what was done: no answer from the server";
    assert!(failed.message.contains(left), "{failed}");
}

#[test]
fn a_specification_may_be_longer_than_a_command() {
    let text = format!("-- {}", "x".repeat(2 << 20));
    let workload = json!({"kind": "sysbench-script", "script": {"name": "own.lua", "text": text}});
    let specification = json!({"conninfo": {"user": "u"}, "workload": workload, "seed": 1, "connections": 1,
        "into_existing": false});
    let mut program = Command::new(env!("CARGO_BIN_EXE_pgdyno-engine"));
    let mut child = program.arg("load").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{specification}").unwrap();
    let output = child.wait_with_output().unwrap();
    let event: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(event["message"].as_str().unwrap().contains("own.lua has no command prepare"), "{event}");
}

fn an_empty_table_of_the_user_is_not_replaced(server: &Database) {
    execute(server, "CREATE TABLE stock (precious text, other int)");
    let refused = load(server).unwrap_err();
    assert!(refused.message.starts_with("the database has stock, which pgdyno did not load"), "{refused}");
    assert_eq!(execute(server, OURS), ["stock"]);
    execute(server, "SELECT precious FROM stock; DROP TABLE stock");
}

fn a_function_of_the_user_is_not_replaced(server: &Database) {
    execute(server, "CREATE FUNCTION tpcc_payment(integer) RETURNS integer LANGUAGE sql AS 'SELECT 42'");
    let refused = load(server).unwrap_err();
    assert!(refused.message.contains("tpcc_payment(integer)"), "{refused}");
    assert_eq!(execute(server, "SELECT tpcc_payment(1)"), ["42"]);
    execute(server, "DROP FUNCTION tpcc_payment(integer)");
}

fn a_load_that_cannot_write_its_marker_cleans_up(server: &Database) {
    execute(server, NO_MARK);
    let failed = load(server).unwrap_err();
    assert!(failed.message.starts_with("cannot mark the dataset as whole"), "{failed}");
    execute(server, "DROP EVENT TRIGGER refuse_mark");
    assert_eq!(execute(server, OURS), Vec::<String>::new());
}

fn timeouts_of_the_database_do_not_apply_to_a_load(server: &Database) {
    // The first one is new in PostgreSQL 14, the second one in 17.
    let known = "SELECT name FROM pg_settings WHERE name IN ('idle_session_timeout', 'transaction_timeout')";
    let alter = format!("ALTER DATABASE {}", server.name);
    for name in execute(server, known) {
        execute(server, &format!("{alter} SET {name} = '500ms'"));
    }
    load(server).unwrap();
    execute(server, &format!("{alter} RESET ALL"));
}

fn the_counter_of_new_orders_counts_their_commits(server: &Database) {
    let orders = || execute(server, "SELECT count(*) FROM orders")[0].parse::<u64>().unwrap();
    let before = orders();
    let result = new_orders(server, 300);
    let target = &result["targets"][0];
    assert_eq!(target["counters"]["new_orders"], target["totals"]["new_order"]["ok"], "{result}");
    assert_eq!(target["counters"]["new_orders"], orders() - before);
    assert!(orders() > before);
}

fn a_damaged_dataset_is_not_counted_as_rollbacks_by_design(server: &Database) {
    execute(server, "DELETE FROM item");
    let result = new_orders(server, 100);
    let kind = &result["targets"][0]["kinds"]["new_order"];
    assert_eq!(kind["counts"]["rolled_back"], 0, "{result}");
    assert_eq!(kind["counts"]["failed"], kind["failures"]["workload"]);
    assert_ne!(kind["counts"]["failed"], 0);
}
