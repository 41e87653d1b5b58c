//! Output beyond pgbench's: percentiles, JSON, histograms.

use std::process::Output;

use serde_json::{Value, json};

use super::Pgbench;

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

/// The values of a distribution in ascending order of quantiles.
fn rising(latency: &Value) -> Vec<f64> {
    ["p50", "p90", "p95", "p99", "p99.9", "max"].map(|name| number(&latency[name])).to_vec()
}

fn assert_rising(numbers: &[f64]) {
    assert!(numbers.windows(2).all(|pair| pair[0] <= pair[1]), "{numbers:?}");
    assert!(numbers[0] > 0.0);
}

#[test]
fn percentiles_of_scripts_and_statements_follow_the_report_of_pgbench() {
    let Some(pgbench) = Pgbench::find("percentiles") else { return };
    let one = pgbench.script("one.sql", "\\set x 1\nselect :x;\n");
    let two = pgbench.script("two.sql", "select 2;\n");
    let run = ["-f", &one, "-f", &two, "-t", "50", "-c", "2", "-j", "2", "--pgdyno"];
    let text = printed(&pgbench.ours(&run));
    let (report, section) =
        text.split_once("pgdyno: latency of transactions done, in ms, lower is better; ").unwrap();
    assert!(report.contains("\ntps = "), "{report}");
    assert!(section.starts_with("from its start to its end"), "{section}");
    let rows: Vec<Vec<&str>> = section.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1], ["n", "p50", "p90", "p95", "p99", "p99.9", "max"]);
    let names: Vec<String> = rows[2..8].iter().map(|row| row[7..].join(" ")).collect();
    let script = |number: u32, path: &str| format!("SQL script {number}: {path}");
    let (first, second) = (script(1, &one), script(2, &two));
    assert_eq!(names, ["all transactions", &first, "\\set x 1", "select :x;", &second, "select 2;"]);
    for row in rows[2..8].iter().filter(|row| row[7] != "\\set") {
        assert_rising(&row[1..7].iter().map(|number| number.parse().unwrap()).collect::<Vec<f64>>());
    }
    let n: Vec<u64> = rows[2..8].iter().map(|row| row[0].parse().unwrap()).collect();
    assert_eq!((n[0], n[1] + n[4]), (100, 100));
    assert_eq!((n[1], n[1], n[4]), (n[2], n[3], n[5]));
    assert!(section.contains("\ndriver's CPU: "), "{section}");
    // None of it is printed without the options.
    assert!(!printed(&pgbench.ours(&["-f", &one])).contains("pgdyno:"));
}

#[test]
fn the_complete_result_is_one_line_of_json() {
    let Some(pgbench) = Pgbench::find("json") else { return };
    let fails = pgbench.script(
        "fails.sql",
        "\\set n random(1, 4)\nselect :n;\ndo $$ begin if :n = 1 then raise sqlstate '40001'; end if; end $$;\n",
    );
    let arguments = [
        "-f",
        &fails,
        "-f",
        &fails,
        "-t",
        "100",
        "-c",
        "2",
        "--random-seed=5",
        "--json",
        "-M",
        "simple",
        "-D",
        "a=b",
    ];
    let text = printed(&pgbench.ours(&arguments));
    assert_eq!(text.lines().count(), 1);
    let result: Value = serde_json::from_str(&text).unwrap();
    let options = json!({
        "dbname": pgbench.database.name, "clients": 2, "jobs": 1, "connect": false, "transactions_per_client": 100, "time_s": null,
        "protocol": "simple", "define": [["a", "b"]], "rate_per_s": null, "latency_limit_ms": null, "scale": 1,
        "max_tries": 1, "continue_on_error": false, "random_seed": 5});
    assert_eq!(result["options"], options);
    let total = &result["transactions"];
    assert_eq!(
        (&total["all"], &total["skipped"], &result["is_aborted"]),
        (&json!(200), &json!(0), &json!(false))
    );
    let (done, failed) = (count(&total["done"]), count(&total["failed"]));
    assert!(done + failed == 200 && failed > 0, "{total}");
    assert_eq!(count(&total["serialization_failures"]), failed);
    let tps = done as f64 / number(&result["duration_s"]);
    assert!((number(&result["tps"]) - tps).abs() < 1e-6 * tps);
    assert_eq!((&result["latency_from"], &result["lag_ms"]), (&json!("start"), &Value::Null));
    assert_rising(&rising(&result["latency_ms"]));
    let scripts = result["scripts"].as_array().unwrap();
    let sum =
        |field: &str| -> u64 { scripts.iter().map(|script| count(&script["transactions"][field])).sum() };
    assert_eq!((sum("all"), sum("done"), sum("failed")), (200, done, failed));
    for script in scripts {
        let statements = script["statements"].as_array().unwrap();
        assert_eq!(statements[1]["command"], "select :n;");
        assert_eq!(statements[2]["failures"], script["transactions"]["failed"]);
        // Failed transactions executed the statement before the failed one.
        assert_eq!(statements[1]["latency_ms"]["n"], script["transactions"]["all"]);
        assert_eq!(statements[2]["latency_ms"]["n"], script["transactions"]["done"]);
        assert_rising(&rising(&statements[2]["latency_ms"]));
    }
    let points = result["series"].as_array().unwrap();
    let sum = |field: &str| -> u64 { points.iter().map(|point| count(&point[field])).sum() };
    assert_eq!((sum("done"), sum("failed")), (done, failed));
    let covered: f64 = points.iter().map(|point| number(&point["duration_s"])).sum();
    assert!(covered <= number(&result["duration_s"]) + 1e-9);
    assert!(number(&result["driver_cpu"]["per_transaction_us"]) > 0.0);
}

#[test]
fn with_a_rate_latency_is_measured_from_the_scheduled_start() {
    let Some(pgbench) = Pgbench::find("schedule") else { return };
    let slow = pgbench.script("slow.sql", "select pg_sleep(0.02);\n");
    // Twenty transactions that take 20 ms each, due within about 2 ms: the last one waits for nearly all
    // others.
    let arguments = ["-f", &slow, "-t", "20", "-R", "10000"];
    let result: Value =
        serde_json::from_str(&printed(&pgbench.ours(&[&arguments[..], &["--json"]].concat()))).unwrap();
    assert_eq!(result["latency_from"], "scheduled start");
    let statement = &result["scripts"][0]["statements"][0]["latency_ms"];
    assert!(number(&result["latency_ms"]["max"]) > 5.0 * number(&statement["p50"]), "{result}");
    assert!(number(&result["lag_ms"]["max"]) > 5.0 * number(&statement["p50"]), "{result}");
    let text = printed(&pgbench.ours(&[&arguments[..], &["--pgdyno"]].concat()));
    assert!(text.contains("from its scheduled start to its end: waiting for a free client counts"), "{text}");
    let skips = [&arguments[..], &["-L", "50", "--pgdyno"]].concat();
    let text = printed(&pgbench.ours(&skips));
    let (_, skipped) = text.split_once("not among them: 0 failed and ").unwrap();
    let skipped: u64 = skipped.split(' ').next().unwrap().parse().unwrap();
    // The fourth transaction would be sent at 60 ms at the earliest.
    assert!((17..=20).contains(&skipped), "{text}");
}
