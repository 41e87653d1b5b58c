//! Transaction log: pgbench's files and columns, with the same transactions for the same seed.

use std::{fs, thread};

use super::Pgbench;

/// Logs of a run in the order of threads, without times. Removes the files.
fn logs(pgbench: &Pgbench, prefix: &str) -> Vec<Vec<Vec<String>>> {
    let files = fs::read_dir(&pgbench.database.directory).unwrap().map(|file| file.unwrap().path());
    let begins = |path: &std::path::PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(prefix);
    let mut files: Vec<_> = files.filter(begins).collect();
    files.sort_by_key(|path| path.as_os_str().len());
    let read = |path| {
        let text = fs::read_to_string(&path).unwrap();
        fs::remove_file(path).unwrap();
        text.lines().map(|line| line.split(' ').map(str::to_owned).collect()).collect()
    };
    files.into_iter().map(read).collect()
}

/// Logs of the same run by pgbench and by pgdyno-pgbench.
fn both(pgbench: &Pgbench, arguments: &[&str]) -> [Vec<Vec<Vec<String>>>; 2] {
    ["real", "ours"].map(|prefix| logged(pgbench, prefix, arguments))
}

/// Logs of a run by pgbench, or by pgdyno-pgbench, in files with this prefix.
fn logged(pgbench: &Pgbench, prefix: &str, arguments: &[&str]) -> Vec<Vec<Vec<String>>> {
    let path = pgbench.path(prefix);
    let arguments = [&["--random-seed=9", "--log", "--log-prefix", &path], arguments].concat();
    let output = if prefix.starts_with("real") { pgbench.run(&arguments) } else { pgbench.ours(&arguments) };
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    logs(pgbench, prefix)
}

#[test]
fn transactions_are_logged_as_by_pgbench() {
    let Some(pgbench) = Pgbench::find("log") else { return };
    let one = pgbench.script("one.sql", "select 1;\n");
    let two = pgbench.script("two.sql", "select 2;\n");
    let fails = pgbench.script(
        "fails.sql",
        "\\set n 1 + random(0, 1)\ndo $$ begin if :n = 1 then raise sqlstate '40001'; else raise sqlstate '40P01'; end if; end $$;\n",
    );
    let slow = pgbench.script("slow.sql", "select pg_sleep(0.02);\n");
    let (late, hurry) = (["-f", &slow, "-t", "40"], ["-R", "2000", "-L", "30"]);
    // By client and number: columns that are equal in every run. The latency is compared if it is a word, the
    // lag if it is zero.
    let cases: [&[&str]; 6] = [
        &["-f", &one, "-f", &two, "-t", "50"],
        &["-f", &one, "-t", "400", "--sampling-rate=0.3"],
        &["-f", &one, "-t", "20", "-c", "3", "-j", "2", "--max-tries=2"],
        &["-f", &fails, "-t", "20", "--max-tries=3"],
        &["-f", &fails, "-t", "20", "--failures-detailed"],
        &["-f", &one, "-t", "20", "-R", "5000"],
    ];
    for arguments in cases {
        let [real, ours] = both(&pgbench, arguments).map(|logs| {
            let shown = |mut line: Vec<String>| {
                let columns = line.len();
                assert!(line[4].parse::<u64>().unwrap() > 1_600_000_000, "{line:?}");
                assert!(line[5].parse::<u64>().unwrap() < 1_000_000, "{line:?}");
                line[2].retain(|c| !c.is_ascii_digit());
                line.drain(if arguments.contains(&"-R") { 4..7 } else { 4..6 });
                (columns, line)
            };
            let shown = |file: Vec<Vec<String>>| {
                let mut lines: Vec<_> = file.into_iter().map(shown).collect();
                lines.sort();
                lines
            };
            logs.into_iter().map(shown).collect::<Vec<_>>()
        });
        assert!(real.iter().flatten().count() >= 20, "{arguments:?}");
        assert_eq!(ours, real, "{arguments:?}");
    }
    // The number of skipped transactions is random.
    for logs in both(&pgbench, &[&late[..], &hurry].concat()) {
        let lines = &logs[0];
        assert_eq!(lines.len(), 40);
        let skipped: Vec<_> = lines.iter().filter(|line| line[2] == "skipped").collect();
        assert!(!skipped.is_empty());
        assert!(skipped.iter().all(|line| line.len() == 7 && line[6] == "0"), "{skipped:?}");
    }
}

#[test]
fn aggregates_have_pgbenchs_columns() {
    let Some(pgbench) = Pgbench::find("aggregates") else { return };
    let one = pgbench.script("one.sql", "select pg_sleep(0.01);\n");
    let cases: [&[&str]; 3] = [&[], &["-R", "50", "-L", "1000"], &["--max-tries=2", "--failures-detailed"]];
    // All runs at the same time: they only sleep.
    thread::scope(|scope| {
        for (number, options) in cases.into_iter().enumerate() {
            for program in ["real", "ours"] {
                let (pgbench, one) = (&pgbench, &one);
                // The transactions last 2.2 s at least. With a time limit the run may end just before its second
                // interval.
                scope.spawn(move || {
                    let arguments = [&["-f", one, "-t", "220", "--aggregate-interval=1"], options].concat();
                    let logs = logged(pgbench, &format!("{program}{number}"), &arguments);
                    assert_aggregates(&logs[0], options);
                });
            }
        }
    });
}

fn assert_aggregates(lines: &[Vec<String>], options: &[&str]) {
    // Each second has a line from the first to the last, of which there are two at least.
    let starts: Vec<u64> = lines.iter().map(|line| line[0].parse().unwrap()).collect();
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] == 1), "{options:?}: {lines:?}");
    assert!(lines.len() >= 2, "{options:?}: {lines:?}");
    for line in lines {
        let numbers: Vec<u64> = line.iter().map(|number| number.parse().unwrap()).collect();
        assert_eq!(numbers.len(), 15);
        let [_, count, sum, squares, min, max, lag, ..] = numbers[..] else { panic!() };
        assert!(min <= max && min * count <= sum && sum <= max * count, "{line:?}");
        assert!(min * sum <= squares && squares <= max * sum, "{line:?}");
        // On a machine that stalls, an interval may be empty.
        assert_eq!(lag > 0, options.contains(&"-R") && count > 0, "{line:?}");
    }
}

#[test]
fn a_log_that_cannot_be_opened_is_rejected_as_by_pgbench() {
    let Some(pgbench) = Pgbench::find("no_log") else { return };
    let one = pgbench.script("one.sql", "select 1;\n");
    let place = pgbench.path("none/x");
    let arguments = ["-f", &one, "-t", "1", "-l", "--log-prefix", &place];
    let mut texts = Vec::new();
    for output in [pgbench.run(&arguments), pgbench.ours(&arguments)] {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(errors.contains(&format!("\"{place}.")), "{errors}");
        assert!(errors.trim_end().ends_with("\": No such file or directory"), "{errors}");
        assert_eq!(output.status.code(), Some(1));
        texts.push(errors);
    }
    assert!(texts[1].contains("error: could not open logfile \""), "{texts:?}");
}
