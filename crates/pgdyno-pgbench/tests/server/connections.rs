//! Connections, environment and prompts, compared with the real pgbench and libpq.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::Pgbench;
use super::command::shape;
use super::golden::Golden;
use super::wording::assert_equivalent;

/// Host names that are resolved on this machine.
const RESOLVED: [&str; 3] = ["localhost", "127.1", "no.such.host.invalid"];

/// Environment variables and their values.
pub type Environment<'a> = &'a [(&'a str, &'a str)];

const OURS: &str = env!("CARGO_BIN_EXE_pgdyno-pgbench");

/// Runs a program without a terminal, so that it reads a password from `typed`.
fn run(pgbench: &Pgbench, program: &Path, environment: Environment<'_>, arguments: &[&str]) -> Output {
    let typed = pgbench.script("typed", "wrong\n");
    let mut command = Command::new("setsid");
    command.arg("--wait").arg(program).args(arguments).stdin(fs::File::open(typed).unwrap());
    let server = pgbench.database.server;
    command.env("LC_ALL", "C").env("PGPORT", server.port.to_string()).env("PGUSER", "postgres");
    command.env("PGHOST", &server.directory).envs(environment.iter().copied());
    command.stderr(Stdio::piped()).output().unwrap()
}

/// Messages and exit status of both programs, pgdyno-pgbench first.
pub fn both(pgbench: &Pgbench, environment: Environment<'_>, arguments: &[&str]) -> (Told, Told) {
    let run = |program: &Path| told(&run(pgbench, program, environment, arguments));
    (run(Path::new(OURS)), run(&pgbench.program))
}

/// Lines and exit status.
type Told = (Vec<String>, Option<i32>);

/// Messages and exit status.
///
/// A closed connection may still count for a moment, so it is random which client, or the setup, fails to get
/// one.
fn told(output: &Output) -> Told {
    let text = String::from_utf8_lossy(&output.stderr).replace("pgdyno-pgbench", "pgbench");
    let mut text = text.replace("for client 0", "for client 1");
    if text.contains("too many connections for role") {
        text = text.replace("for setup", "for client 1");
    }
    (text.lines().map(str::to_owned).collect(), output.status.code())
}

#[test]
fn a_failed_connection_has_libpqs_message() {
    let Some(pgbench) = Pgbench::find("connections") else { return };
    let mut golden = Golden::new("connections", &pgbench);
    for role in ["u_clear", "u_md5", "u_scram", "u_no_tls", "u_only_tls"] {
        let hash = if role == "u_md5" { "md5" } else { "scram-sha-256" };
        pgbench
            .query(&format!("set password_encryption = '{hash}'; create role {role} login password 'right'"));
    }
    pgbench.query("create role nologin");
    pgbench.query("create role one login connection limit 1");
    let one = pgbench.script("one.sql", "select 1;\n");
    let local = ("PGHOST", "127.0.0.1");
    let cases: [(Environment<'_>, &[&str]); 24] = [
        (&[], &["-h", "/nowhere"]),
        (&[], &["-h", "127.0.0.1", "-p", "1"]),
        (&[], &["-h", "localhost", "-p", "1"]),
        (&[], &["-h", "127.1", "-p", "1"]),
        (&[], &["-p", "1", "hostaddr=127.0.0.1 host=localhost"]),
        (&[], &["-h", "127.0.0.1,/nowhere", "-p", "1"]),
        (&[], &["-h", "no.such.host.invalid"]),
        (&[], &["-U", "nobody"]),
        (&[], &["-U", "nologin"]),
        (&[], &["nowhere"]),
        (&[("PGDATABASE", "nowhere")], &[]),
        (&[], &["-U", "one", "-c", "2", "postgres"]),
        (&[local], &["-U", "nobody"]),
        (&[local, ("PGSSLMODE", "disable")], &["-U", "nobody"]),
        (&[local, ("PGPASSWORD", "wrong")], &["-U", "u_clear"]),
        (&[local, ("PGPASSWORD", "wrong")], &["-U", "u_md5"]),
        (&[local, ("PGPASSWORD", "wrong")], &["-U", "u_scram"]),
        (&[local, ("PGPASSWORD", "wrong"), ("PGSSLMODE", "require")], &["-U", "u_no_tls"]),
        (&[local, ("PGPASSWORD", "wrong"), ("PGSSLMODE", "allow")], &["-U", "u_only_tls"]),
        (&[local], &["-U", "u_scram"]),
        (&[local, ("PGSSLMODE", "disable")], &["-U", "u_md5"]),
        (&[], &["-i", "nowhere"]),
        (&[], &["-i", "-h", "/nowhere"]),
        (&[local, ("PGSSLMODE", "require")], &["-i", "-U", "u_scram"]),
    ];
    for (environment, arguments) in cases {
        let script = ["-n", "-f", &one];
        let script = if arguments.contains(&"-i") { &[][..] } else { &script };
        let arguments = [script, arguments].concat();
        let real = told(&run(&pgbench, &pgbench.program, environment, &arguments));
        let ours = told(&run(&pgbench, Path::new(OURS), environment, &arguments));
        assert_eq!(real.1, Some(1), "{environment:?} {arguments:?}: {real:?}");
        assert_equivalent(&ours.0, &real.0, (environment, &arguments));
        assert_eq!(ours.1, real.1, "{environment:?} {arguments:?}");
        // The addresses of a name, or the reason why there are none, depend on the machine.
        if !arguments.iter().any(|argument| RESOLVED.contains(argument)) {
            golden.add((environment, &arguments), ours.1, &ours.0);
        }
    }
    golden.check();
}

#[test]
fn a_client_that_cannot_reconnect_is_aborted_with_libpqs_message() {
    let Some(pgbench) = Pgbench::find("again") else { return };
    pgbench.query("create role lapses superuser login");
    let ends = pgbench.script("ends.sql", "alter role lapses nologin;\n");
    let arguments = ["-n", "-f", &ends, "-t", "3", "-C", "-U", "lapses", "postgres"];
    let both = [pgbench.program.as_path(), Path::new(OURS)].map(|program| {
        pgbench.query("alter role lapses login");
        run(&pgbench, program, &[], &arguments)
    });
    let [real, ours] = both.each_ref().map(told);
    assert!(ours.0[0].contains("FATAL:  role \"lapses\" "), "{ours:?}");
    assert_eq!(ours.0[1], "pgbench: error: client 0 aborted while establishing connection");
    assert_equivalent(&ours.0, &real.0, arguments);
    assert_eq!(ours.1, real.1);
    assert_eq!(ours.1, Some(2));
    assert_equivalent(&shape(&both[1].stdout), &shape(&both[0].stdout), arguments);
}

#[test]
fn a_password_is_prompted_for_once_and_used_for_all_connections() {
    let Some(pgbench) = Pgbench::find("password") else { return };
    pgbench.query("set password_encryption = 'md5'; create role u_md5_prompt login password 'wrong'");
    let one = pgbench.script("one.sql", "select 1;\n");
    let local: Environment<'_> =
        &[("PGHOST", "127.0.0.1"), ("PGUSER", "u_md5_prompt"), ("PGDATABASE", "postgres")];
    for arguments in [&["-n", "-f", &one, "-t", "2", "-c", "2", "-C"][..], &["-i", "-I", "d"]] {
        let real = run(&pgbench, &pgbench.program, local, arguments);
        let ours = run(&pgbench, Path::new(OURS), local, arguments);
        assert!(told(&ours).0.contains(&"Password: ".to_owned()), "{ours:?}");
        assert_equivalent(&shape(&ours.stderr), &shape(&real.stderr), arguments);
        assert_equivalent(&shape(&ours.stdout), &shape(&real.stdout), arguments);
        assert_eq!((ours.status.code(), real.status.code()), (Some(0), Some(0)));
    }
}

#[test]
fn a_password_file_is_used_unless_others_can_read_it() {
    let Some(pgbench) = Pgbench::find("passfile") else { return };
    pgbench.query("set password_encryption = 'md5'; create role u_md5_file login password 'right'");
    let one = pgbench.script("one.sql", "select 1;\n");
    let file = pgbench.script("pgpass", "127.0.0.1:*:postgres:u_md5_file:right\n");
    let environment: Environment<'_> =
        &[("PGHOST", "127.0.0.1"), ("PGUSER", "u_md5_file"), ("PGPASSFILE", &file)];
    let arguments = ["-n", "-f", &one, "-t", "1", "postgres"];
    for (mode, status) in [(0o600, 0), (0o644, 1)] {
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        let [real, ours] = [pgbench.program.as_path(), Path::new(OURS)]
            .map(|program| told(&run(&pgbench, program, environment, &arguments)));
        assert_eq!((real.1, ours.1), (Some(status), Some(status)), "{mode:o}: {ours:?}");
        // libpq prints it for each connection, including the one with TLS.
        let ignored = |(lines, _): (Vec<String>, _)| {
            let mut lines: Vec<_> = lines.into_iter().filter(|line| line.starts_with("WARNING: ")).collect();
            lines.dedup();
            lines
        };
        let [real, ours] = [real, ours].map(ignored);
        assert_eq!(ours.len(), usize::from(status == 1), "{ours:?}");
        assert_equivalent(&ours, &real, mode);
    }
    fs::write(&file, "*:*:*:*:wrong\n").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let [real, ours] = [pgbench.program.as_path(), Path::new(OURS)]
        .map(|program| told(&run(&pgbench, program, environment, &arguments)));
    let is_from = |line: &String| line.starts_with("password retrieved from file \"");
    assert!(ours.0.iter().any(is_from), "{ours:?}");
    assert_equivalent(&ours.0, &real.0, arguments);
    assert_eq!(ours.1, real.1);
}

#[test]
fn environment_variables_set_what_options_do_not() {
    let Some(pgbench) = Pgbench::find("environment") else { return };
    let mut golden = Golden::new("environment", &pgbench);
    pgbench.query("create role other superuser login");
    pgbench.query("create database other");
    let who = "do $$ begin raise notice '% % %', current_user, current_database(), \
               current_setting('application_name'); end $$;\n";
    let who = pgbench.script("who.sql", who);
    let seeds = pgbench.script("seeds.sql", "\\set r debug(random(1, 1000000) + 0 * :random_seed)\n");
    let (who, seeds) = (["-n", "-t", "1", "-f", &who], ["-n", "-t", "1", "-f", &seeds]);
    let cases: [(Environment<'_>, &[&str], &[&str], i32); 19] = [
        (&[], &who, &[], 0),
        (&[("PGUSER", "other")], &who, &[], 0),
        (&[("PGDATABASE", "other")], &who, &[], 0),
        (&[("PGDATABASE", "")], &who, &[], 0),
        (&[("PGDATABASE", "nowhere")], &who, &["-U", "other", "other"], 0),
        (&[("PGAPPNAME", "mine")], &who, &[], 0),
        (&[("PGOPTIONS", "-c role=other")], &who, &[], 0),
        (&[("PGHOST", "/nowhere"), ("PGPORT", "1")], &who, &[], 1),
        (&[("PGHOSTADDR", "127.0.0.1"), ("PGSSLMODE", "disable"), ("PGPORT", "1")], &who, &[], 1),
        (&[("PGBENCH_RANDOM_SEED", "7")], &seeds, &[], 0),
        (&[("PGBENCH_RANDOM_SEED", "7")], &seeds, &["--random-seed=8"], 0),
        (&[("PGBENCH_RANDOM_SEED", "-5")], &seeds, &[], 0),
        (&[], &seeds, &["--random-seed=18446744073709551616"], 0),
        (&[], &seeds, &["--random-seed=-99999999999999999999"], 0),
        (&[], &seeds, &["--random-seed= +7"], 0),
        (&[], &seeds, &["--random-seed=7 "], 1),
        (&[("PGBENCH_RANDOM_SEED", "7x")], &seeds, &["--random-seed=8"], 1),
        (&[("PGBENCH_RANDOM_SEED", "7")], &["-i", "-I", "d"], &[], 0),
        (&[("PGBENCH_RANDOM_SEED", "")], &["-i", "-I", "d"], &[], 1),
    ];
    for (environment, run_, more, status) in cases {
        let arguments = [run_, more].concat();
        let real = told(&run(&pgbench, &pgbench.program, environment, &arguments));
        let ours = told(&run(&pgbench, Path::new(OURS), environment, &arguments));
        let untimed = |(lines, status): (Vec<String>, Option<i32>)| {
            (lines.into_iter().filter(|line| !line.starts_with("done in ")).collect::<Vec<_>>(), status)
        };
        assert_eq!(real.1, Some(status), "{environment:?} {arguments:?}: {real:?}");
        let (ours, real) = (untimed(ours), untimed(real));
        assert_equivalent(&ours.0, &real.0, (environment, &arguments));
        assert_eq!(ours.1, real.1, "{environment:?} {arguments:?}");
        golden.add((environment, &arguments), ours.1, &ours.0);
    }
    golden.check();
}

#[test]
fn a_script_that_reads_the_scale_gets_a_warning_about_the_default() {
    let Some(pgbench) = Pgbench::find("scale") else { return };
    let reads = pgbench.script("reads.sql", "\\set x debug(:scale)\n");
    let reads_not = pgbench.script("reads-not.sql", "\\set x debug(1)\n");
    let told = |arguments: &[&str]| {
        let output = pgbench.ours(&[arguments, &["-t", "1"]].concat());
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let warning = "pgdyno-pgbench: warning: \":scale\" is 1, as in pgbench, but pgbench_branches has 2 rows\n\
                   pgdyno-pgbench: hint: Give -s 2 if the scripts mean these tables.\n";
    assert!(!told(&["-f", &reads]).contains("warning"), "there are no tables");
    pgbench.query("create table pgbench_branches as select 1");
    assert!(!told(&["-f", &reads]).contains("warning"), "the scale is the right one");
    pgbench.query("insert into pgbench_branches values (2)");
    let text = told(&["-f", &reads]);
    assert!(text.starts_with(warning) && text.contains(": int 1\n"), "{text}");
    for knows in [&["-f", &reads, "-s", "2"][..], &["-f", &reads, "-D", "scale=1"], &["-f", &reads_not]] {
        assert!(!told(knows).contains("warning"), "{knows:?}");
    }
}
