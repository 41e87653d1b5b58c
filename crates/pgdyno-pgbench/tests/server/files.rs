//! The limit of open files of a run.

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
    let log = pgbench.path("log");
    let files = ["-l", "--log-prefix", &log];
    let run = ["-n", "-f", &one, "-c", "20", "-j", "2", "-t", "5", &pgbench.database.name];
    let ours = limited(Path::new(OURS), "20:48", &[&files[..], &run].concat());
    assert_eq!(ours, (vec![], Some(0)));
}
