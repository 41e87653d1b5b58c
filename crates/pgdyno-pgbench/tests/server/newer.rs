//! Features of pgbench since 16. Without an oracle in version 15, the expectations are those of PostgreSQL's
//! own tests.

use super::Pgbench;

/// Script, options, exit status, parts of the report, and parts of the messages.
type Case<'a> = (&'a str, &'a [&'a str], i32, &'a [&'a str], &'a [&'a str]);

fn check(pgbench: &Pgbench, cases: &[Case<'_>]) {
    for (script, options, status, reported, told) in cases {
        let path = pgbench.script("newer.sql", script);
        let output = pgbench.ours(&[&["-f", &path, "-t", "1"], *options].concat());
        let [report, errors] =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        assert_eq!(output.status.code(), Some(*status), "{script} {options:?}: {errors}");
        for text in *reported {
            assert!(report.contains(text), "{script} {options:?}: {report}");
        }
        for text in *told {
            assert!(errors.contains(text), "{script} {options:?}: {errors}");
        }
        if told.is_empty() {
            assert_eq!(errors, "", "{script} {options:?}");
        }
    }
}

#[test]
fn pipelines_synchronise_and_must_be_closed() {
    let Some(pgbench) = Pgbench::find("pipelines") else { return };
    pgbench.query("create table t (a int primary key)");
    let syncs = "\\startpipeline\nselect 1;\n\\syncpipeline\n\\syncpipeline\nselect 2;\n\\syncpipeline\nselect 3;\n\\endpipeline\n";
    let serializable =
        "\\startpipeline\nbegin isolation level serializable;\nselect 1;\nselect 2;\nend;\n\\endpipeline\n";
    let commits = "\\startpipeline\ninsert into t values (1);\n\\syncpipeline\nselect 1/0;\ninsert into t values (2);\n\\endpipeline\n";
    let one = "number of transactions actually processed: 1/1\n";
    let (extended, prepared) = (&["-M", "extended"][..], &["-M", "prepared"][..]);
    let open = "client 0 aborted: end of script reached with pipeline open";
    let cases: [Case<'_>; 13] = [
        (syncs, extended, 0, &[one], &[]),
        (syncs, prepared, 0, &[one], &[]),
        (
            "\\startpipeline\n\\endpipeline\n\\startpipeline\nselect 1;\n\\endpipeline\n",
            prepared,
            0,
            &[one],
            &[],
        ),
        (
            serializable,
            &["-M", "prepared", "-c", "4", "-j", "2", "-t", "10"],
            0,
            &["processed: 40/40\n"],
            &[],
        ),
        ("\\startpipeline\n\\startpipeline\n", extended, 2, &[], &["already in pipeline mode"]),
        ("\\endpipeline\n", extended, 2, &[], &["not in pipeline mode"]),
        ("\\syncpipeline\n", extended, 2, &[], &["not in pipeline mode"]),
        (
            "\\startpipeline\nselect 1 \\gset f\n\\endpipeline\n",
            extended,
            2,
            &[],
            &["gset is not allowed in pipeline mode"],
        ),
        ("\\startpipeline\n", extended, 2, &[], &[open]),
        ("\\startpipeline\n", &["-M", "extended", "-t", "2"], 2, &[], &[open]),
        ("\\startpipeline\n\\syncpipeline\n", &["-M", "extended", "-t", "2"], 2, &[], &[open]),
        ("\\startpipeline\nselect 1;\nvacuum t;\n\\endpipeline\n", extended, 2, &[], &["VACUUM cannot"]),
        (commits, extended, 2, &["processed: 0/1\n"], &["ERROR:  division by zero"]),
    ];
    check(&pgbench, &cases);
    assert_eq!(
        pgbench.query("select a from t"),
        ["1"],
        "what was before the sync is there, what was behind it is not"
    );
}

#[test]
fn errors_end_the_transaction_the_client_or_the_run() {
    let Some(pgbench) = Pgbench::find("newer") else { return };
    pgbench.query(
        "create table counter (i int); insert into counter values (0); create table sole (i int unique)",
    );
    let counts = "update counter set i = i + 1 returning i \\gset\n\\if :i = 5\n\\set y 1/0\n\\endif\n";
    let insert = "insert into sole values (0);\n";
    let block = "begin;\ninsert into sole values (0);\nend;\n";
    let pipeline = "\\startpipeline\nselect 1;\ninsert into sole values (0);\nselect 2;\n\\endpipeline\n";
    let no_copy = "pgdyno-pgbench: error: COPY is not supported in pgbench, aborting\n";
    let goes_on = "--continue-on-error";
    let (others, all) =
        ("number of other failures: 9 (90.000%)\n", "number of failed transactions: 5 (100.000%)\n");
    let cases: [Case<'_>; 11] = [
        (
            counts,
            &["-t", "10", "-c", "2", "-j", "2", "--exit-on-abort"],
            2,
            &[],
            &["division by zero", "error: Run was aborted due to an error in thread "],
        ),
        (insert, &["-t", "10", goes_on, "--failures-detailed"], 0, &["processed: 1/10\n", others], &[]),
        (
            insert,
            &["-t", "5", goes_on, "--max-tries=3"],
            0,
            &[all, "number of transactions retried: 0 (0.000%)\n"],
            &[],
        ),
        (block, &["-t", "5", goes_on], 0, &[all], &[]),
        (
            block,
            &["-t", "5", goes_on, "-M", "prepared", "--verbose-errors"],
            0,
            &[all],
            &["client 0 got an error in command 1 (SQL) of script 0; ERROR:  duplicate key"],
        ),
        (pipeline, &["-t", "5", goes_on, "-M", "extended"], 0, &[all], &[]),
        (
            insert,
            &["-t", "5"],
            2,
            &["processed: 0/5\n"],
            &["aborted in command 0 query 0: ERROR:  duplicate key"],
        ),
        (
            "select pg_terminate_backend(pg_backend_pid());\n",
            &["-t", "5", goes_on],
            2,
            &["processed: 0/5\n"],
            &["FATAL:  terminating connection"],
        ),
        ("copy counter from stdin", &["-t", "10"], 2, &["processed: 0/10\n"], &[no_copy]),
        ("copy counter to stdout;\n", &["-M", "prepared"], 2, &["processed: 0/1\n"], &[no_copy]),
        (
            "\\startpipeline\ncopy counter to stdout;\n\\endpipeline\n",
            &["-M", "extended"],
            2,
            &["processed: 0/1\n"],
            &[no_copy],
        ),
    ];
    check(&pgbench, &cases);
    assert_eq!(pgbench.query("select count(*) from sole"), ["1"]);
}
