//! Messages about errors and notices, and debug messages of each command, compared with the real pgbench.

use std::process::Output;

use super::Pgbench;
use super::command::shape;
use super::golden::Golden;
use super::wording::assert_equivalent;

/// Lines on standard error.
///
/// The message that pgbench is still receiving may occur any number of times. Since 17 it contains the number
/// of remaining syncs; until then there could be only one.
pub fn told(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stderr).replace("pgdyno-pgbench", "pgbench");
    let text = text.replace("pipeline ending, ongoing syncs: 1", "pipeline ending");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.dedup_by(|a, b| a == b && a.ends_with(" receiving"));
    lines
}

fn assert_same(golden: &mut Golden, pgbench: &Pgbench, script: &str, options: &[&str]) {
    let path = pgbench.script("messages.sql", script);
    let arguments = [options, &["-f", &path, "-t", "1"]].concat();
    let (real, ours) = (pgbench.run(&arguments), pgbench.ours(&arguments));
    assert_equivalent(&told(&ours), &told(&real), (script, options));
    assert_eq!(ours.status.code(), real.status.code(), "{script} {options:?}");
    golden.add((script, options), ours.status.code(), &told(&ours));
}

#[test]
fn errors_and_notices_of_the_server_have_libpqs_messages() {
    let Some(pgbench) = Pgbench::find("messages") else { return };
    let mut golden = Golden::new("messages", &pgbench);
    let long = format!("select {}, {}, nothing, {};", "'a', ".repeat(20), "'表'", "'b', ".repeat(20));
    let cases = [
        "select 1;\nselect\t*\n from  nothing;\n",
        "\\set x 12345\nselect :x, nothing;\n",
        "select 1/0;\n",
        "select nothing(1);\n",
        "create temp table one (a int primary key);\ninsert into one values (1);\ninsert into one values (1);\n",
        "do $$ begin perform 1/0; end $$;\n",
        "do $$ begin execute E'select 1,\\n nothing'; end $$;\n",
        "do $$ begin raise warning 'w' using hint = 'h', detail = 'd'; end $$;\n",
        "begin;\nbegin;\nend;\n",
        "select '表', nothing;\n",
        &long,
    ];
    for script in cases {
        for protocol in ["simple", "extended"] {
            assert_same(&mut golden, &pgbench, script, &["-M", protocol]);
        }
    }
    assert_same(&mut golden, &pgbench, "select 1\\; select nothing;\n", &[]);
    let pipeline = "\\startpipeline\nselect 1;\nselect 2, nothing;\nselect 3;\n\\endpipeline\n";
    assert_same(&mut golden, &pgbench, pipeline, &["-M", "extended"]);
    golden.check();
}

#[test]
fn a_run_with_debug_reports_each_command() {
    let Some(pgbench) = Pgbench::find("debug") else { return };
    let mut golden = Golden::new("debug", &pgbench);
    let words = "\\set a 1 + 1\n\\sleep  1   us\n\\shell true  x\nselect :a,\n 3;\n";
    let branches = "\\if false\nselect 1;\n\\elif true\nselect 2;\n\\elif true\nselect 3;\n\\else\nselect 4;\n\\endif\n\
                    \\if false\n\\elif false\n\\else\nselect 5 as x \\gset\n\\endif\n\\if false\n\\endif\nselect :x;\n";
    for script in [words, branches] {
        for protocol in ["simple", "extended", "prepared"] {
            assert_same(&mut golden, &pgbench, script, &["--debug", "-M", protocol]);
        }
    }
    assert_same(&mut golden, &pgbench, "\\set a 1 / 0\n", &["--debug"]);
    let pipeline = "\\startpipeline\nselect 1;\nselect 2;\n\\endpipeline\n";
    for protocol in ["extended", "prepared"] {
        assert_same(&mut golden, &pgbench, pipeline, &["--debug", "-M", protocol]);
    }
    let syncs = pgbench.script("syncs.sql", "\\startpipeline\nselect 1;\n\\syncpipeline\n\\endpipeline\n");
    let ours = told(&pgbench.ours(&["--debug", "-M", "extended", "-f", &syncs, "-t", "1"]));
    let endings = ["client 0 pipeline ending, ongoing syncs: 2", "client 0 pipeline ending"];
    assert!(ours.ends_with(&endings.map(|line| format!("pgbench: {line}"))), "{ours:?}");
    golden.check();
}

#[test]
fn commands_of_the_shell_print_and_fail_as_in_pgbench() {
    let Some(pgbench) = Pgbench::find("shell") else { return };
    let mut golden = Golden::new("shell", &pgbench);
    let long = "a".repeat(300);
    let cases = [
        "\\shell echo printed\nselect 1;\n",
        "\\set a 7\n\\shell echo :a ::a\n",
        "\\shell cat\n",
        "\\shell false\n",
        "\\shell no-such-command\n",
        "\\shell kill -9 $$\n",
        "\\shell echo :undefined\n",
        &format!("\\shell echo {long}\n"),
        "\\setshell x echo 3\n\\set y debug(:x)\n",
        "\\setshell x echo\\\n  ' 4 '\n\\set y debug(:x)\n",
        "\\setshell x cat\n",
        "\\setshell x echo 3; exit 3\n\\set y debug(:x)\n",
        "\\setshell x echo 99999999999\n\\set y debug(:x)\n",
        "\\setshell x echo -n one\n",
        "\\setshell x echo 3x\n",
        "\\setshell x no-such-command\n",
        "\\setshell x true\n",
        "\\setshell x echo :undefined\n",
        "\\setshell . echo 1\n",
        &format!("\\setshell x echo {long}\n"),
    ];
    for script in cases {
        for options in [&[][..], &["--debug"]] {
            let path = pgbench.script("shell.sql", script);
            let arguments = [options, &["-f", &path, "-t", "1"]].concat();
            let (real, ours) = (pgbench.run(&arguments), pgbench.ours(&arguments));
            assert_equivalent(&told(&ours), &told(&real), (script, options));
            assert_equivalent(&shape(&ours.stdout), &shape(&real.stdout), (script, options));
            assert_eq!(ours.status.code(), real.status.code(), "{script} {options:?}");
            golden.add((script, options), ours.status.code(), &told(&ours));
        }
    }
    golden.check();
    let printed = |options: &[&str]| {
        let path = pgbench.script("shell.sql", "\\shell echo printed\n");
        let output = pgbench.ours(&[options, &["-f", &path, "-t", "1"]].concat());
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).contains("printed\n"))
    };
    assert_eq!(printed(&[]), [true, false]);
    assert_eq!(printed(&["--json"]), [false, true], "JSON has standard output to itself");
}

#[test]
fn failed_preparation_and_missing_statements_have_pgbenchs_messages() {
    let Some(pgbench) = Pgbench::find("prepared") else { return };
    let mut golden = Golden::new("prepared", &pgbench);
    let cases = [
        "select 1;\ndeallocate all;\n",
        "discard all;\nselect 2;\n",
        " SELECT 1 + ;\n",
        "select nothing;\n",
        "begin;\nselect nothing;\nend;\n",
        "select '1a'::text as a \\gset\nselect 42, :a::smallint;\n",
        "\\startpipeline\nselect nothing;\nselect 1;\n\\endpipeline\n",
    ];
    for script in cases {
        for options in [&[][..], &["--verbose-errors", "--max-tries=2"]] {
            let path = pgbench.script("prepared.sql", script);
            let arguments = [options, &["-f", &path, "-t", "2", "-M", "prepared"]].concat();
            let (real, ours) = (pgbench.run(&arguments), pgbench.ours(&arguments));
            // Until 15, the name of a statement also contained the number of its script.
            let real_told: Vec<_> = told(&real).iter().map(|line| line.replace("\"P0_", "\"P_")).collect();
            assert!(real_told.iter().any(|line| line.contains("ERROR:  ")), "{script}");
            assert_equivalent(&told(&ours), &real_told, (script, options));
            // Without executed transactions, 15 prints one more line.
            let retries = |line: &String| line.starts_with("total number of retries");
            let real_shape: Vec<_> = shape(&real.stdout).into_iter().filter(|line| !retries(line)).collect();
            let ours_shape: Vec<_> = shape(&ours.stdout).into_iter().filter(|line| !retries(line)).collect();
            assert_equivalent(&ours_shape, &real_shape, (script, options));
            assert_eq!(ours.status.code(), real.status.code(), "{script} {options:?}");
            golden.add((script, options), ours.status.code(), &[told(&ours), ours_shape].concat());
        }
    }
    golden.check();
}
