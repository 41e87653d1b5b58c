//! Files of a run: the limit of open files, and result files.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use super::Pgbench;
use super::wording::assert_equivalent;

const OURS: &str = env!("CARGO_BIN_EXE_pgdyno-pgbench");

/// Lines on standard error, and exit status.
fn told(output: &Output) -> (Vec<String>, Option<i32>) {
    let text = String::from_utf8_lossy(&output.stderr).replace("pgdyno-pgbench: ", "pgbench: ");
    (text.lines().map(str::to_owned).collect(), output.status.code())
}

#[test]
fn too_many_clients_for_the_file_limit_are_rejected_before_any_connection() {
    let Some(pgbench) = Pgbench::find("limit") else { return };
    let limited = |program: &Path, limit: &str, arguments: &[&str]| {
        let inner = pgbench.command(program);
        let mut command = Command::new("prlimit");
        command.arg(format!("--nofile={limit}")).arg(program).args(inner.get_args());
        told(&command.env("LC_ALL", "C").args(arguments).output().unwrap())
    };
    for clients in ["118", "1000000000"] {
        // The tables do not exist: no message mentions them.
        let [real, ours] = [pgbench.program.as_path(), Path::new(OURS)]
            .map(|program| limited(program, "120:120", &["-c", clients, &pgbench.database.name]));
        assert_eq!(real.1, Some(1), "{real:?}");
        assert!(ours.0[0].contains("open files, but system limit is 120"), "{ours:?}");
        assert_equivalent(&ours.0, &real.0, clients);
        assert_eq!(ours.1, real.1);
    }
    let ours = limited(Path::new(OURS), "120:120", &["-c", "117", &pgbench.database.name]);
    assert_eq!(ours.0[0], "pgbench: error: need at least 137 open files, but system limit is 120");
    // The soft limit is raised, and the estimate is sufficient.
    let one = pgbench.script("one.sql", "select 1;\n");
    let file = pgbench.path("result");
    let log = pgbench.path("log");
    let files = ["-l", "--log-prefix", &log, "--hdr-file", &file];
    let run = ["-n", "-f", &one, "-c", "20", "-j", "2", "-t", "5", &pgbench.database.name];
    let ours = limited(Path::new(OURS), "20:48", &[&files[..], &run].concat());
    assert_eq!(ours, (vec![], Some(0)));
}

#[test]
fn a_file_that_cannot_be_written_is_reported_before_the_run() {
    let Some(pgbench) = Pgbench::find("unwritable") else { return };
    pgbench.query("create table ran ()");
    let one = pgbench.script("one.sql", "insert into ran default values;\n");
    let path = |name: &str| pgbench.path(name);
    symlink(path("to"), path("link")).unwrap();
    for (option, start) in [("--hdr-file", "       Value"), ("--hdr-log", "#[")] {
        for (place, why) in [(path("none/file"), "No such file or directory"), (path(""), "Is a directory")] {
            let (lines, status) = told(&pgbench.ours(&["-f", &one, option, &place]));
            assert_eq!(lines, [format!("pgbench: error: could not write file \"{place}\": {why}")]);
            assert_eq!(status, Some(1));
        }
        assert_eq!(pgbench.query("select count(*) from ran"), ["0"]);
        for name in ["new", "link"] {
            let (place, nowhere) = (path(name), path("nowhere"));
            let failed = pgbench.ours(&["-f", &nowhere, option, &place]);
            assert_eq!(failed.status.code(), Some(1));
            assert!(name == "link" || !Path::new(&place).exists(), "what did not run leaves no file");
            fs::write(&place, "someone else's").unwrap();
            let (lines, status) = told(&pgbench.ours(&["-f", &one, option, &place]));
            let refused = format!("pgbench: error: file \"{place}\" exists and has other content");
            assert_eq!((lines.first(), status), (Some(&refused), Some(1)));
            assert_eq!(fs::read_to_string(&place).unwrap(), "someone else's");
            let former = format!("{start}\nformer");
            fs::write(&place, &former).unwrap();
            assert_eq!(pgbench.ours(&["-f", &nowhere, option, &place]).status.code(), Some(1));
            assert_eq!(fs::read_to_string(&place).unwrap(), former, "what did not run changes no file");
            for _ in 0..2 {
                assert!(pgbench.ours(&["-f", &one, option, &place]).status.success());
                let written = fs::read_to_string(&place).unwrap();
                assert!(written.starts_with(start) && !written.contains("former"), "{written}");
            }
            fs::remove_file(&place).unwrap();
            if name == "link" {
                symlink(path("to"), path("link")).unwrap();
            }
        }
        // A file that is not regular is written to and keeps its type.
        let pipe = path("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).unwrap()
        });
        assert!(pgbench.ours(&["-f", &one, option, &pipe]).status.success());
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
        assert!(!reader.join().unwrap().is_empty(), "{option}");
        fs::remove_file(&pipe).unwrap();
        pgbench.query("truncate ran");
    }
}
