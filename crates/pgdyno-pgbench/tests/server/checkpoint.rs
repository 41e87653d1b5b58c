//! Killed and resumed runs.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use super::Pgbench;

const TRANSACTIONS: u64 = 1000;
const CLIENTS: u64 = 2;

/// Kills a run with SIGKILL after this number of progress reports.
fn kill_after(pgbench: &Pgbench, reports: usize, arguments: &[&str]) {
    let mut command = pgbench.command(Path::new(env!("CARGO_BIN_EXE_pgdyno-pgbench")));
    command.args(["-n", "-P", "1"]).args(arguments).arg(&pgbench.database.name);
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(run.stderr.take().unwrap()).lines().map(Result::unwrap);
    let seen = lines.filter(|line| line.starts_with("progress:")).take(reports).count();
    run.kill().unwrap();
    run.wait().unwrap();
    assert_eq!(seen, reports, "the run ended before it could be killed");
}

/// The work of each client in each of its transactions.
fn done(pgbench: &Pgbench) -> Vec<String> {
    pgbench.query("select client || ' ' || k || ' ' || n from done")
}

fn number(text: &str, before: &str) -> u64 {
    let rest = text.split_once(before).unwrap_or_else(|| panic!("no {before:?} in {text}")).1;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

#[test]
fn a_killed_run_resumes_and_completes_the_requested_transactions() {
    let Some(pgbench) = Pgbench::find("resume") else { return };
    pgbench.query("create table done(client int, k int, n bigint)");
    // A variable that persists between transactions, and random numbers.
    let insert =
        "\\set k :k + 1\n\\set n random(1, 1000000000)\ninsert into done values (:client_id, :k, :n);\n";
    let one = pgbench.script("one.sql", insert);
    let (transactions, clients) = (TRANSACTIONS.to_string(), CLIENTS.to_string());
    let run = ["-f", &one, "-c", &clients, "-j", "2", "-t", &transactions, "-D", "k=0"];
    let real = pgbench.run(&[&run[..], &["--random-seed=77"]].concat());
    assert!(real.status.success());
    let expected: BTreeSet<_> = done(&pgbench).into_iter().collect();
    assert_eq!(expected.len() as u64, TRANSACTIONS * CLIENTS);

    pgbench.query("truncate done");
    let file = pgbench.path("checkpoint");
    // About five seconds; the last checkpoint before the kill is at second 3.
    let rate = ["-R", "400", "--pgdyno"];
    let begin = ["--random-seed=77", "--checkpoint", &file, "--checkpoint-interval=3"];
    kill_after(&pgbench, 4, &[&run[..], &rate, &begin].concat());
    let before = done(&pgbench).len() as u64;
    // Again, before any checkpoint except the initial one.
    let resume = ["--resume", &file, "--checkpoint-interval=3"];
    kill_after(&pgbench, 1, &[&run[..], &rate, &resume].concat());
    let resumed = pgbench.ours(&[&run[..], &rate, &["--resume", &file]].concat());
    let text = String::from_utf8_lossy(&resumed.stdout).into_owned();
    assert!(resumed.status.success(), "{}", String::from_utf8_lossy(&resumed.stderr));
    assert!(text.contains("transactions actually processed: 2000/2000\n"), "{text}");
    assert!(text.contains("pgdyno: resumed 2 times; "), "{text}");
    let again = number(&text, "resumed 2 times; ");
    let in_flight_max = number(&text, "were run again, and up to ");
    assert_eq!(in_flight_max, 2 * CLIENTS);
    let rows = done(&pgbench);
    let more = rows.len() as u64 - TRANSACTIONS * CLIENTS;
    assert!((again..=again + in_flight_max).contains(&more), "{more} rows more, said were {again}");
    assert!(again > 0 && again < before, "{again} of {before}");
    // No transaction is missing, and repeated ones are identical.
    assert_eq!(rows.into_iter().collect::<BTreeSet<_>>(), expected);
    // Histograms are continued, too.
    let row = text.lines().find(|line| line.ends_with("  all transactions")).unwrap();
    assert_eq!(row.split_whitespace().next(), Some(&*(TRANSACTIONS * CLIENTS).to_string()));
}

#[test]
fn a_killed_run_limited_by_time_resumes_for_the_remaining_time() {
    let Some(pgbench) = Pgbench::find("resume_time") else { return };
    pgbench.query("create table done(client int, k int, n bigint)");
    let insert = "\\set k :k + 1\ninsert into done values (:client_id, :k, 0);\n";
    let one = pgbench.script("one.sql", insert);
    let file = pgbench.path("checkpoint");
    let run = ["-f", &one, "-c", "2", "-T", "6", "-R", "200", "-D", "k=0", "--pgdyno"];
    kill_after(&pgbench, 4, &[&run[..], &["--checkpoint", &file, "--checkpoint-interval=1"]].concat());
    let before = done(&pgbench).len() as u64;
    let resumed = pgbench.ours(&[&run[..], &["--json", "--resume", &file, "-P", "1"]].concat());
    let told = String::from_utf8_lossy(&resumed.stderr).into_owned();
    assert!(resumed.status.success(), "{told}");
    // The time driven before the last checkpoint counts, and the time after it does not: the first second
    // reported is not the first of the run.
    let first = told.lines().find_map(|line| line.strip_prefix("progress: ")).unwrap();
    let first_s: f64 = first.split(' ').next().unwrap().parse().unwrap();
    assert!(first_s > 2.0 && first_s < 6.0, "{told}");
    let result: Value = serde_json::from_slice(&resumed.stdout).unwrap();
    // A client does not start a transaction that is due after the end.
    assert!(result["duration_s"].as_f64().unwrap() > 5.0, "{result}");
    assert_eq!(result["history"]["resumed"], 1);
    assert_eq!(result["options"]["time_s"], 6);
    let counted = result["transactions"]["done"].as_u64().unwrap();
    let again = result["history"]["run_again"].as_u64().unwrap();
    let in_flight_max = result["history"]["in_flight_max"].as_u64().unwrap();
    let rows = done(&pgbench).len() as u64;
    assert!((again..=again + in_flight_max).contains(&(rows - counted)), "{rows} rows: {result}");
    assert!(counted > before - again, "nothing was driven after the death: {result}");
    // Each client continues to count from the checkpoint: no transaction number is missing.
    let gaps = "select count(*) from (select count(distinct k) as n, max(k) as last from done group by client) c where n <> last";
    assert_eq!(pgbench.query(gaps), ["0"]);
    let ended = pgbench.ours(&[&run[..], &["--resume", &file]].concat());
    let errors = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(errors.contains("has ended: there is nothing to resume\n"), "{errors}");
}

#[test]
fn a_checkpoint_that_cannot_be_resumed_is_rejected() {
    let Some(pgbench) = Pgbench::find("refuse") else { return };
    let one = pgbench.script("one.sql", "select 1;\n");
    let two = pgbench.script("two.sql", "select 2;\n");
    let file = pgbench.path("checkpoint");
    let run = ["-f", &one, "-t", "500", "-R", "100", "--random-seed=1"];
    kill_after(&pgbench, 1, &[&run[..], &["--checkpoint", &file]].concat());
    let nothing = pgbench.script("nothing", "{}");
    let nowhere = format!("{file}.nowhere");
    let differs = |what: &str| format!("checkpoint \"{file}\" is of a run with other options: {what}");
    let resume = ["--resume", &file];
    let no_checkpoint = format!("\"{nothing}\" is not a checkpoint of this version of pgdyno-pgbench");
    let cases: [(&[&str], &[&str], String); 8] = [
        (
            &run,
            &["--resume", &nowhere],
            format!("could not read checkpoint \"{nowhere}\": No such file or directory"),
        ),
        (&run, &["--resume", &nothing], no_checkpoint.clone()),
        (&run, &["--checkpoint", &nothing], no_checkpoint),
        (
            &run,
            &["--checkpoint", &file],
            format!("checkpoint \"{file}\" is of a run that has not ended: --resume it, or remove the file"),
        ),
        (
            &run,
            &["--checkpoint", "x", "--resume", "x"],
            "--resume goes on writing to its file: it cannot be used together with --checkpoint".to_owned(),
        ),
        (&["-f", &one, "-t", "500", "-R", "100", "-c", "2"], &resume, differs("clients is 2 now and was 1")),
        (
            &["-f", &two, "-t", "500", "-R", "100"],
            &resume,
            differs("the scripts or their weights are others"),
        ),
        (
            &["-f", &one, "-t", "500", "-R", "100", "--random-seed=2"],
            &resume,
            differs("random_seed is 2 now and was 1"),
        ),
    ];
    for (run, resume, message) in cases {
        let output = pgbench.ours(&[run, resume].concat());
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(errors.ends_with(&format!("error: {message}\n")), "{errors}");
        assert_eq!(output.status.code(), Some(1));
    }
    // The run is unchanged, resumes, and is then complete.
    let output = pgbench.ours(&[&run[..], &resume].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("transactions actually processed: 500/500\n"), "{text}");
    assert!(text.contains("pgdyno: resumed once; "), "{text}");
    assert!(!fs::exists(format!("{file}.live")).unwrap());
    let output = pgbench.ours(&[&run[..], &resume].concat());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("has ended: there is nothing to resume\n"), "{errors}");
}

#[test]
fn aborted_clients_resume_at_their_position() {
    let Some(pgbench) = Pgbench::find("go_on") else { return };
    pgbench.query("create table done(client int, k int, n bigint check (n < 3 or client = 1))");
    let counts = "\\set k :k + 1\ninsert into done values (:client_id, :k, :k);\n";
    let one = pgbench.script("one.sql", counts);
    let file = pgbench.path("checkpoint");
    let run = ["-f", &one, "-c", "2", "-t", "5", "-D", "k=0"];
    let aborted = pgbench.ours(&[&run[..], &["--checkpoint", &file]].concat());
    assert_eq!(aborted.status.code(), Some(2));
    pgbench.query("alter table done drop constraint done_check");
    let resumed = pgbench.ours(&[&run[..], &["--resume", &file]].concat());
    let text = String::from_utf8_lossy(&resumed.stdout).into_owned();
    assert!(text.contains("transactions actually processed: 10/10\n"), "{text}");
    assert!(text.contains("resumed once; 0 transactions that had ended after a checkpoint"), "{text}");
    let rows =
        pgbench.query("select client, string_agg(k::text, ' ' order by k) from done group by 1 order by 1");
    assert_eq!(rows, ["0|1 2 3 4 5", "1|1 2 3 4 5"]);
}
