//! Failed and retried transactions and aborted clients, as in PostgreSQL's own tests of pgbench.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::Pgbench;
use super::golden::Golden;
use super::messages::told;
use super::wording::assert_equivalent;

const SERIALIZATION: &str = "do $$ begin raise sqlstate '40001'; end $$;\n";
const DEADLOCK: &str = "do $$ begin raise sqlstate '40P01'; end $$;\n";

/// The lines of the report that count transactions.
fn counts(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_count = |line: &&str| line.contains("number of") && !line.contains("NaN");
    text.lines().filter(is_count).map(str::to_owned).collect()
}

/// Replaces shares of retried transactions, which vary.
fn without_shares(lines: Vec<String>) -> Vec<String> {
    let share = |line: String| match line.split_once(", ") {
        Some((before, after)) if after.contains("% of the maximum time") => before.to_owned(),
        _ => line,
    };
    lines.into_iter().map(share).collect()
}

#[test]
fn transactions_fail_and_are_retried_as_in_pgbench() {
    let Some(pgbench) = Pgbench::find("failures") else { return };
    let mut golden = Golden::new("failures", &pgbench);
    pgbench.query("create table t (a int primary key)");
    let pipeline = format!("\\startpipeline\nselect 1;\n{SERIALIZATION}select 2;\n\\endpipeline\n");
    let block =
        format!("\\startpipeline\nbegin;\nselect 1;\n{SERIALIZATION}select 2;\nend;\n\\endpipeline\n");
    let around =
        format!("begin;\n\\startpipeline\nselect 1;\n{SERIALIZATION}select 2;\nend;\n\\endpipeline\n");
    let twice = "\\startpipeline\nselect 1/0;\n\\endpipeline\nselect 2;\n";
    let branch = format!("\\set a 1\n\\if :a = 1\n{DEADLOCK}\\else\nselect 1;\n\\endif\n");
    let inner = format!(
        "begin;\n\\if true\n\\if false\nselect 1;\n\\elif true\n{SERIALIZATION}\\endif\n\\endif\nend;\n"
    );
    let drawn = format!("\\set a random(1, 1000000)\nselect :a;\n{SERIALIZATION}");
    let kept = format!("\\set a :a + 1\n\\set b debug(:a)\n{SERIALIZATION}");
    let combined = format!("select 1 \\; {} \\; select 3;\n", SERIALIZATION.trim_end_matches(";\n"));
    let open = format!("begin;\ninsert into t values (1);\n{DEADLOCK}end;\n");
    let retries = ["--max-tries=3", "--verbose-errors"];
    let cases: [(&str, &[&str]); 26] = [
        (SERIALIZATION, &["-t", "2"]),
        (SERIALIZATION, &["-t", "2", "--verbose-errors"]),
        (SERIALIZATION, &["-t", "2", "--max-tries=2", "--failures-detailed"]),
        (SERIALIZATION, &["--max-tries=3", "-L", "100000", "--verbose-errors"]),
        (DEADLOCK, &["-t", "2", "--max-tries=2", "--failures-detailed", "--verbose-errors", "-C"]),
        (&pipeline, &["-M", "extended", retries[0], retries[1]]),
        (&pipeline, &["-M", "prepared", retries[0], retries[1]]),
        (&block, &["-M", "prepared", retries[0], retries[1]]),
        (&around, &["-M", "extended", retries[0], retries[1]]),
        (twice, &["-M", "extended", retries[0], retries[1]]),
        (&branch, &["--failures-detailed", retries[0], retries[1]]),
        (&inner, &["-t", "2", "-C", retries[0], retries[1]]),
        (&drawn, &["--random-seed=5", "--debug", retries[0], retries[1]]),
        (&kept, &["-D", "a=0", "-t", "2", retries[0], retries[1]]),
        (&combined, &[retries[0], retries[1]]),
        (&open, &["-t", "2", retries[0], retries[1]]),
        ("begin;\nselect 1/0;\nend;\n", &["-t", "2", retries[0], retries[1]]),
        (
            "begin;\n\\startpipeline\nselect 1/0;\n\\endpipeline\n",
            &["-M", "extended", retries[0], retries[1]],
        ),
        ("insert into t values (1), (1);\n", &["-t", "3", "-c", "2"]),
        ("select pg_terminate_backend(pg_backend_pid());\n", &["-t", "3", retries[0]]),
        ("select pg_terminate_backend(pg_backend_pid());\n", &["-t", "3", "-M", "prepared"]),
        ("begin;\nselect pg_terminate_backend(pg_backend_pid());\nend;\n", &["-t", "3", "-C"]),
        ("select 1/0 \\; copy t to stdout;\n", &["-t", "3"]),
        ("BEGIN;SELECT 1;", &["-t", "10"]),
        ("begin;\n\\set x 1/0\n", &["-t", "3", retries[0]]),
        ("select 1;\n\\if 1/0\n\\endif\n", &["-t", "3", retries[0]]),
    ];
    for (script, options) in cases {
        let path = pgbench.script("failures.sql", script);
        let arguments = [&["-f", &path, "-t", "1"], options].concat();
        let (real, ours) = (pgbench.run(&arguments), pgbench.ours(&arguments));
        let lines = |output: &Output| {
            let mut lines = without_shares(told(output));
            // Each of several clients reports it at its own time.
            if arguments.contains(&"-c") {
                lines.sort_unstable();
            }
            lines
        };
        assert_equivalent(&lines(&ours), &lines(&real), (script, options));
        assert_equivalent(&counts(&ours)[..3], &counts(&real)[..3], (script, options));
        let failed = |output: &Output| {
            let has =
                |line: &String| ["failed", "failures", "retried"].iter().any(|word| line.contains(word));
            counts(output).into_iter().filter(has).collect::<Vec<_>>()
        };
        // Without any counted transaction, 15 prints lines that 18 omits.
        if !failed(&ours).is_empty() {
            assert_equivalent(&failed(&ours), &failed(&real), (script, options));
        }
        assert_eq!(ours.status.code(), real.status.code(), "{script} {options:?}");
        golden.add((script, options), ours.status.code(), &[lines(&ours), counts(&ours)].concat());
    }
    golden.check();
}

#[test]
fn unlimited_tries_end_with_the_latency_limit() {
    let Some(pgbench) = Pgbench::find("tries") else { return };
    let path = pgbench.script("fails.sql", SERIALIZATION);
    let arguments = ["-f", &path, "-t", "1", "--max-tries=0", "-L", "20", "--verbose-errors"];
    for output in [pgbench.run(&arguments), pgbench.ours(&arguments)] {
        let lines = told(&output);
        let last = lines.last().unwrap();
        assert!(last.starts_with("pgbench: client 0 ends the failed transaction (try "), "{lines:?}");
        let used = last.split_once(", ").unwrap().1;
        let share: f64 =
            used.strip_suffix("% of the maximum time of tries was used)").unwrap().parse().unwrap();
        assert!(share > 100.0, "{last}");
        let counts = counts(&output);
        assert!(counts.contains(&"number of failed transactions: 1 (100.000%)".to_owned()), "{counts:?}");
        assert!(!counts.iter().any(|line| line.contains("maximum number of tries")), "{counts:?}");
        assert_eq!(output.status.code(), Some(0));
    }
}

/// Client 0 updates a row and waits until client 1 waits for its lock. Client 1 gets a serialization failure,
/// but not again, because the row is then updated.
const CONCURRENT: &str = "\\set delta random(1, 5000)
\\if :client_id = 0
begin;
update xy set y = y + :delta;
select pg_advisory_xact_lock(2);
do $$ begin
  while not exists (select from pg_locks where locktype = 'transactionid' and not granted
    and pg_backend_pid() = any(pg_blocking_pids(pid))) loop end loop;
end $$;
\\else
do $$ begin
  while not exists (select from pg_locks where locktype = 'advisory' and objid = 2 and granted)
    and (select y = 0 from xy) loop end loop;
end $$;
begin;
update xy set y = y + :delta;
\\endif
commit;
";

#[test]
fn a_concurrent_update_is_retried_with_the_same_random_numbers() {
    let Some(pgbench) = Pgbench::find("concurrent") else { return };
    pgbench.set("default_transaction_isolation", "repeatable read");
    let path = pgbench.script("concurrent.sql", CONCURRENT);
    let arguments = [
        "-f",
        &path,
        "-t",
        "1",
        "-c",
        "2",
        "--debug",
        "--verbose-errors",
        "--max-tries=2",
        "--random-seed=9",
    ];
    let run = |ours: bool| {
        pgbench.query("drop table if exists xy");
        pgbench.query("create table xy as select 1 as x, 0 as y");
        let output = if ours { pgbench.ours(&arguments) } else { pgbench.run(&arguments) };
        let lines = told(&output);
        let of_client = |line: &&String| line.contains("client 1 ") && !line.ends_with(" receiving");
        let of_client: Vec<_> = lines.iter().filter(of_client).cloned().collect();
        let counts = counts(&output);
        for expected in
            ["number of transactions actually processed: 2/2", "number of transactions retried: 1 (50.000%)"]
        {
            assert!(counts.contains(&expected.to_owned()), "{counts:?}");
        }
        let retries = String::from_utf8_lossy(&output.stdout).contains("total number of retries: 1\n");
        assert!(retries && output.status.success(), "{output:?}");
        (of_client, pgbench.query("select y from xy"))
    };
    let (real, ours) = (run(false), run(true));
    let (sent, failed) = (
        "client 1 sending update xy set y = y + ",
        "ERROR:  could not serialize access due to concurrent update",
    );
    let updates: Vec<_> = real.0.iter().filter(|line| line.contains(sent)).collect();
    assert!(updates.len() == 2 && updates[0] == updates[1], "{updates:?}");
    assert!(real.0.iter().any(|line| line.ends_with(failed)), "{:?}", real.0);
    assert_equivalent(&ours.0, &real.0, CONCURRENT);
    assert_eq!(ours.1, real.1);
}

/// Each client locks one of two rows, waits until the other has locked the other one, and then requests it. The
/// deadlock victim finds the row unlocked at its next try.
const DEADLOCKED: &str = "begin;
\\set mine 10 + :client_id
\\set other 11 - :client_id
select pg_advisory_xact_lock(:mine);
do $$ begin
  while not exists (select from pg_locks where locktype = 'advisory' and objid = :other and granted)
    and not exists (select from ended) loop end loop;
end $$;
select pg_advisory_xact_lock(:other);
insert into ended values (:client_id);
commit;
";

#[test]
fn a_deadlock_is_retried() {
    let Some(pgbench) = Pgbench::find("deadlock") else { return };
    pgbench.query("create table ended (client int)");
    pgbench.set("deadlock_timeout", "20ms");
    let path = pgbench.script("deadlock.sql", DEADLOCKED);
    for ours in [false, true] {
        pgbench.query("truncate ended");
        let arguments =
            ["-f", &path, "-t", "1", "-c", "2", "--verbose-errors", "--max-tries=2", "--failures-detailed"];
        let output = if ours { pgbench.ours(&arguments) } else { pgbench.run(&arguments) };
        let errors = told(&output).join("\n").replace("client 1", "client 0");
        let expected = "pgbench: client 0 got an error in command 5 (SQL) of script 0; ERROR:  deadlock detected\nDETAIL:  ";
        assert!(errors.starts_with(expected), "{errors}");
        assert!(
            errors.ends_with("pgbench: client 0 repeats the transaction after the error (try 1/2)"),
            "{errors}"
        );
        let counts = counts(&output);
        let expected = [
            "number of transactions actually processed: 2/2",
            "number of deadlock failures: 0 (0.000%)",
            "number of transactions retried: 1 (50.000%)",
            "total number of retries: 1",
        ];
        for expected in expected {
            assert!(counts.contains(&expected.to_owned()), "{counts:?}");
        }
        assert_eq!(pgbench.query("select count(distinct client) from ended"), ["2"]);
        assert!(output.status.success());
    }
}

#[test]
fn a_killed_backend_aborts_its_client() {
    let Some(pgbench) = Pgbench::find_alone("dies") else { return };
    let path = pgbench.script("sleeps.sql", "select 'it sleeps', pg_sleep(600);\n");
    let mut ends = Vec::new();
    for program in [pgbench.program.as_path(), Path::new(env!("CARGO_BIN_EXE_pgdyno-pgbench"))] {
        let mut command = pgbench.command(program);
        let command = command.args(["-n", "-f", &path, "-t", "1", &pgbench.database.name]);
        let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // By its wait event: the text of the query also matches an earlier psql that has not ended yet.
        let sleeper = "select pid from pg_stat_activity where wait_event = 'PgSleep'";
        let pid = loop {
            if let Some(pid) = pgbench.query(sleeper).pop() {
                break pid;
            }
        };
        assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
        let output = running.wait_with_output().unwrap();
        ends.push((told(&output), output.status.code()));
        // The server restarts.
        let psql = pgbench.program.with_file_name("psql");
        while !pgbench
            .command(&psql)
            .args(["-qc", "select 1", &pgbench.database.name])
            .output()
            .unwrap()
            .status
            .success()
        {}
    }
    let [(real, real_status), (ours, ours_status)] = &ends[..] else { panic!("{ends:?}") };
    assert!(ours[0].ends_with("of script 0; perhaps the backend died while processing"), "{ends:?}");
    assert_equivalent(ours, real, "a backend that dies");
    assert_eq!(ours_status, real_status);
}
