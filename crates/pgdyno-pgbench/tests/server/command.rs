//! The program compared with the real pgbench: the same options give the same output (except numbers) and exit
//! status.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

use super::Pgbench;
use super::golden::Golden;
use super::wording::{assert_equivalent, assert_texts_equivalent};

/// Output without numbers, version and program name.
pub fn shape(printed: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(printed).replace("pgdyno-pgbench", "pgbench");
    // Without executed transactions, pgbench 15 divides by zero, and 18 does not.
    let lines = text.lines().filter(|line| !line.starts_with("pgbench (") && !line.contains("NaN"));
    let mut shapes: Vec<String> = lines
        .map(|line| {
            let line = line.split(' ').filter(|word| !word.is_empty());
            let words = line.map(|word| {
                let core = word.trim_matches(|c: char| "()%,/".contains(c));
                let is_number = core.split('/').all(|part| part.parse::<f64>().is_ok());
                if is_number {
                    word.replace(|c: char| c.is_ascii_digit() || c == '.', "#")
                } else {
                    word.to_owned()
                }
            });
            let mut line = words.collect::<Vec<_>>().join(" ");
            while line.contains("##") {
                line = line.replace("##", "#");
            }
            line
        })
        .collect();
    shapes.dedup_by(|a, b| a == b && a.starts_with("progress:"));
    // One line of a script's statistics in 15 is two in 18.
    shapes.dedup_by(|line, before| {
        let is_second = line == "- number of transactions actually processed: # (tps = #)";
        if is_second {
            *before = before.replace(" of total)", " of total, tps = #)");
        }
        is_second
    });
    shapes
}

fn lines(printed: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(printed).lines().map(str::to_owned).collect()
}

fn initialise(pgbench: &Pgbench) {
    let output = pgbench.run(&["-i", "-q", "-s", "1"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_run_has_the_report_of_pgbench() {
    let Some(pgbench) = Pgbench::find("report") else { return };
    let mut golden = Golden::new("report", &pgbench);
    initialise(&pgbench);
    let one = pgbench.script("one.sql", "\\set x 1 + :scale\nselect :x;\n");
    let open = pgbench.script("open.sql", "begin;\n");
    let divides = pgbench.script("divides.sql", "\\set x 1 / 0\n");
    let two_rows = pgbench.script("two.sql", "select 1 as a union select 2 \\gset\n");
    let weighted = [format!("{one}@2"), format!("{one}@1")];
    let continued = pgbench.script("continued.sql", "\\set x 1 + \\\n  2 \\\n + 3\nselect :x,\n 1;\n");
    let combined = ["select 1\\; select 1/0 as a \\gset\n", "select 1 as b\\; select 1/0 as a \\aset\n"];
    let combined = combined.map(|text| pgbench.script(&format!("{}.sql", text.len()), text));
    let cases: [&[&str]; 28] = [
        &["-t", "3"],
        &["-f", &combined[0], "-t", "3"],
        &["-f", &combined[1], "-t", "3"],
        &["-S", "-t", "3", "-c", "3", "-j", "2", "-M", "prepared"],
        &["-N", "-t", "3", "-r", "-M", "extended"],
        &["-f", &weighted[0], "-f", &weighted[1], "-t", "50"],
        &["-b", "t", "-t", "3", "-c", "2", "-C", "-v"],
        &["-f", &one, "-t", "3", "-s", "7"],
        &["-f", &one, "-t", "5", "-C"],
        &["-S", "-t", "5", "-r", "--max-tries=3", "--failures-detailed"],
        &["-S", "-t", "5", "-L", "1000"],
        &["-S", "-t", "5", "-R", "1000"],
        &["-S", "-t", "5", "-R", "1000", "-L", "500", "--max-tries", "0"],
        &["-S", "-T", "1"],
        &["-S", "-s", "5", "-t", "1"],
        &["-S", "-t", "1", "--random-seed=5"],
        &["-f", &divides, "-t", "3"],
        &["-f", &two_rows, "-t", "3"],
        &["-f", &continued, "-t", "3", "-r"],
        &["-f", &continued, "-f", &one, "-t", "50", "-r"],
        &["-S", "-t", "5", "-L", "0.0001"],
        &["-S", "-t", "5", "-L", "0.0019"],
        &["-f", "."],
        &["-f", "/nowhere.sql"],
        &["-S", "-t", "1", "-T", "1"],
        &["-M", "binary"],
        &["-c", "none"],
        &["-c", "0"],
    ];
    for arguments in cases {
        let (real, ours) = (pgbench.run(arguments), pgbench.ours(arguments));
        assert_eq!(ours.status.code(), real.status.code(), "{arguments:?}");
        assert_equivalent(&shape(&ours.stdout), &shape(&real.stdout), arguments);
        assert_equivalent(&shape(&ours.stderr), &shape(&real.stderr), arguments);
        let printed = [shape(&ours.stdout), shape(&ours.stderr)].concat();
        golden.add(arguments, ours.status.code(), &printed);
    }
    golden.check();
    for arguments in
        [&["-f", &open, "-t", "3"][..], &["-f", &open, "-t", "3", "-c", "2", "-L", "1000", "-R", "100"]]
    {
        let counted = |output: &Output| {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.lines()
                .filter(|line| line.contains(" of transactions"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let (real, ours) = (pgbench.run(arguments), pgbench.ours(arguments));
        assert_equivalent(&counted(&ours), &counted(&real), ("a transaction left open counts", arguments));
        assert_eq!((ours.status.code(), real.status.code()), (Some(2), Some(2)), "{arguments:?}");
    }
    let wide = format!("\\set i 0\nselect least({}:i);\n", ":i, ".repeat(255));
    let wide = pgbench.script("wide.sql", &wide);
    let too_wide = ["-f", &wide, "-M", "prepared"];
    let (real, ours) = (pgbench.run(&too_wide), pgbench.ours(&too_wide));
    let told = String::from_utf8_lossy(&ours.stderr).into_owned();
    assert!(told.contains("statement has too many arguments (maximum is 255): select least(:i"), "{told}");
    assert_equivalent(&shape(&ours.stderr), &shape(&real.stderr), too_wide);
    for output in [real, ours] {
        assert_eq!(
            (output.status.code(), output.stdout.as_slice()),
            (Some(1), &b""[..]),
            "before it connects"
        );
    }
    let aborted = pgbench.ours(&["-f", &open, "-t", "3", "--exit-on-abort"]);
    assert_eq!(aborted.status.code(), Some(2));
    assert!(aborted.stdout.ends_with(b")\n"), "only the version is printed");
}

#[test]
fn a_connection_string_overrides_options() {
    let Some(pgbench) = Pgbench::find("uri") else { return };
    let one = pgbench.script("one.sql", "select 1;\n");
    let host = pgbench.database.server.directory.display().to_string().replace('/', "%2F");
    let strings = [
        format!("postgresql://{host}:{}/postgres", pgbench.database.server.port),
        "postgresql:///postgres?port=1".to_owned(),
    ];
    let programs = [pgbench.program.as_path(), Path::new(env!("CARGO_BIN_EXE_pgdyno-pgbench"))];
    for (string, status) in strings.into_iter().zip([0, 1]) {
        let [real, ours] = programs.map(|program| {
            pgbench.command(program).args(["-n", "-t", "1", "-f", &one, &string]).output().unwrap()
        });
        assert_eq!((real.status.code(), ours.status.code()), (Some(status), Some(status)), "{ours:?}");
        assert_equivalent(&shape(&ours.stdout), &shape(&real.stdout), &string);
        assert_equivalent(&shape(&ours.stderr), &shape(&real.stderr), &string);
    }
}

#[test]
fn builtin_scripts_check_the_partitioning_of_accounts() {
    let Some(pgbench) = Pgbench::find("accounts") else { return };
    initialise(&pgbench);
    pgbench.query("drop table pgbench_accounts");
    let mut golden = Golden::new("accounts", &pgbench);
    let cases = ["select", "create table pgbench_accounts (aid int, abalance int) partition by list (aid)"];
    for (sql, told) in
        cases.into_iter().zip(["no pgbench_accounts table found", "unexpected partition method: \"l\""])
    {
        pgbench.query(sql);
        let (real, ours) = (pgbench.run(&["-S", "-t", "1"]), pgbench.ours(&["-S", "-t", "1"]));
        assert_eq!((ours.status.code(), real.status.code()), (Some(1), Some(1)));
        // Since 16, names of executables are quoted.
        let real = String::from_utf8_lossy(&real.stderr).replace("in search_path", "in \"search_path\"");
        let ours_shape = shape(&ours.stderr);
        assert!(ours_shape.iter().any(|line| line.contains(told)), "{ours_shape:?}");
        assert_equivalent(&ours_shape, &shape(real.as_bytes()), sql);
        golden.add(sql, ours.status.code(), &ours_shape);
    }
    golden.check();
}

#[test]
fn output_without_a_reader_does_not_panic() {
    let program = env!("CARGO_BIN_EXE_pgdyno-pgbench");
    for argument in ["--help", "-V"] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = Command::new(program).arg(argument).stdout(full).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(
            told,
            "pgdyno-pgbench: error: could not write to standard output: No space left on device\n"
        );
    }
    let full = File::options().write(true).open("/dev/full").unwrap();
    let status = Command::new(program).args(["-c", "0"]).stderr(full).status().unwrap();
    assert_eq!(status.code(), Some(1));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = Command::new(program).arg("--help").stdout(writer).status().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGPIPE), "as other programs end");
}

#[test]
fn invalid_options_are_rejected_as_by_pgbench() {
    let Some(pgbench) = Pgbench::find("options") else { return };
    let mut golden = Golden::new("options", &pgbench);
    let cases: [&[&str]; 16] = [
        &["--nothing"],
        &["-t", "0"],
        &["-j", "1x"],
        &["-D", "x"],
        &["-D", "=1"],
        &["-R", "0"],
        &["-L", "no"],
        &["-b", "s"],
        &["-b", "tpcb@x"],
        &["--show-script=x"],
        &["-b", "tpcb@0"],
        &["--random-seed", "x"],
        &["--progress-timestamp"],
        &["--max-tries=0"],
        &["one", "two"],
        &["--max-tries=-1"],
    ];
    for arguments in cases {
        let (real, ours) = (pgbench.run(arguments), pgbench.ours(arguments));
        assert_eq!(ours.status.code(), Some(1), "{arguments:?}");
        assert_eq!(real.status.code(), Some(1), "{arguments:?}");
        let called = |output: &Output, name: &str| {
            // getopt prints the program name as called.
            let path = String::from_utf8_lossy(&output.stderr).into_owned();
            let lines =
                path.lines().map(|line| line.rsplit_once(name).map_or(line, |(_, rest)| rest).to_owned());
            lines.collect::<Vec<_>>()
        };
        let ours = called(&ours, "pgdyno-pgbench");
        assert_equivalent(&ours, &called(&real, "pgbench"), arguments);
        golden.add(arguments, Some(1), &ours);
    }
    golden.check();
}

#[test]
fn version_help_and_lists_equal_those_of_pgbench() {
    let Some(pgbench) = Pgbench::find("itself") else { return };
    let mut golden = Golden::new("itself", &pgbench);
    for arguments in
        [["-b", "list"], ["--show-script", "se"], ["--show-script", "tpcb-like"], ["--show-script", "simple"]]
    {
        let (real, ours) = (pgbench.run(&arguments), pgbench.ours(&arguments));
        for (ours, real) in [(&ours.stdout, &real.stdout), (&ours.stderr, &real.stderr)] {
            let [ours, real] = [ours, real].map(|text| String::from_utf8_lossy(text));
            assert_texts_equivalent(&ours, &real, arguments);
        }
        let printed = [ours.stdout, ours.stderr].map(|text| lines(&text)).concat();
        golden.add(arguments, ours.status.code(), &printed);
        assert_eq!((ours.status.code(), real.status.code()), (Some(0), Some(0)), "{arguments:?}");
    }
    golden.check();
    let answer = |argument: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_pgdyno-pgbench")).arg(argument).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(answer("-V").starts_with("pgbench (PostgreSQL) 18 (pgdyno "));
    let help = answer("--help");
    for text in [
        "benchmarking tool for PostgreSQL",
        "Usage",
        "Initialization options:",
        "Common options:",
        "Report bugs to",
    ] {
        assert!(help.contains(text), "{text}");
    }
}

#[test]
fn scripts_of_several_clients_create_and_drop_objects() {
    let Some(pgbench) = Pgbench::find("makes") else { return };
    let labels = (1..=100).map(|label| format!("'l{label}'")).collect::<Vec<_>>().join(", ");
    let makes = format!("create type pg_temp.e as enum ({labels}); drop type pg_temp.e;\n");
    let makes = pgbench.script("makes.sql", &makes);
    let output = pgbench.ours(&["-f", &makes, "-c", "5", "-M", "prepared", "-t", "25"]);
    assert_eq!(output.stderr, b"");
    assert!(String::from_utf8_lossy(&output.stdout).contains("actually processed: 125/125\n"));
}

#[test]
fn errors_of_the_server_are_reported_with_exit_status_two() {
    let Some(pgbench) = Pgbench::find("errors") else { return };
    let missing = pgbench.script("missing.sql", "select 1;\nselect * from nothing_of_this_name;\n");
    let ours = pgbench.ours(&["-f", &missing, "-t", "3"]);
    let errors = String::from_utf8_lossy(&ours.stderr).into_owned();
    let expected = "error: client 0 script 0 aborted in command 1 query 0: \
                    ERROR:  relation \"nothing_of_this_name\" does not exist";
    assert!(errors.contains(expected), "{errors}");
    assert!(errors.ends_with("error: Run was aborted; the above results are incomplete.\n"), "{errors}");
    assert_eq!(ours.status.code(), Some(2));
    let ours = pgbench.ours(&["-f", &missing, "-t", "3", "--continue-on-error"]);
    let printed = String::from_utf8_lossy(&ours.stdout).into_owned();
    assert!(printed.contains("number of failed transactions: 3 (100.000%)"), "{printed}");
    assert_eq!(ours.status.code(), Some(0));
    let ours = pgbench.ours(&["-S"]);
    let errors = String::from_utf8_lossy(&ours.stderr).into_owned();
    assert!(errors.contains("hint: Perhaps you need to do initialization (\"pgbench -i\")"), "{errors}");
    assert_eq!(ours.status.code(), Some(1));
}
