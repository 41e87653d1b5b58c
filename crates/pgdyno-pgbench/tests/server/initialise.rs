//! `-i`: the same options create the same tables with the same messages and exit status as in the real pgbench.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::Pgbench;
use super::command::shape;
use super::golden::Golden;
use super::wording::{assert_equivalent, assert_texts_equivalent};

/// Queries for all properties of the tables that could differ.
const TABLES: &str = "
    SELECT attrelid::regclass, attnum, attname, format_type(atttypid, atttypmod), attnotnull, atthasdef
      FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
     WHERE relname LIKE 'pgbench%' AND relkind IN ('r', 'p') AND attnum > 0;
    SELECT relname, relkind, reloptions, relpersistence, reltablespace, pg_get_expr(relpartbound, oid)
      FROM pg_class WHERE relname LIKE 'pgbench%';
    SELECT conrelid::regclass, conname, pg_get_constraintdef(oid)
      FROM pg_constraint WHERE conrelid::regclass::text LIKE 'pgbench%';
    SELECT pg_get_indexdef(indexrelid), indisprimary, indisvalid
      FROM pg_index WHERE indrelid::regclass::text LIKE 'pgbench%';
    SELECT relname, reltuples >= 0 FROM pg_class WHERE relname ~ '^pgbench_[^_]*$'";
const ROWS: &str = "
    SELECT tableoid::regclass, count(*), min(pg_column_size(t.*)), max(pg_column_size(t.*)),
           sum(hashtextextended(t::text, 0))
      FROM pgbench_accounts t GROUP BY 1;
    SELECT sum(hashtextextended(t::text, 0)) FROM pgbench_tellers t;
    SELECT sum(hashtextextended(t::text, 0)) FROM pgbench_branches t;
    SELECT count(*) FROM pgbench_history";

impl Pgbench {
    fn make(&self, program: &Path, arguments: &[&str], database: &str) -> Output {
        self.command(program).arg("-i").args(arguments).arg(database).output().unwrap()
    }

    /// The result of a query in an order that does not depend on the server.
    fn sorted(&self, database: &str, query: &str) -> Vec<String> {
        let mut lines = self.query_in(database, query);
        lines.sort_unstable();
        lines
    }

    /// Output and exit status of both programs, each with its own database.
    fn make_both(&self, arguments: &[&str], theirs: &str) -> [Output; 2] {
        let ours = Path::new(env!("CARGO_BIN_EXE_pgdyno-pgbench"));
        [self.make(&self.program, arguments, theirs), self.make(ours, arguments, &self.database.name)]
    }
}

/// Also the name of a database for the real pgbench.
fn with_databases(test: &str) -> Option<(Pgbench, String)> {
    let pgbench = Pgbench::find(test)?;
    let theirs = format!("{}_theirs", pgbench.database.name);
    pgbench.database.server.create_database(&theirs);
    Some((pgbench, theirs))
}

/// Since 17, pgbench's progress lines contain the table.
fn messages(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stderr);
    shape(text.replace(" of pgbench_accounts done", " done").as_bytes())
}

#[test]
fn tables_and_messages_equal_those_of_the_real_pgbench() {
    let Some((pgbench, theirs)) = with_databases("initialise") else { return };
    let databases = [theirs.as_str(), &pgbench.database.name];
    let mut golden = Golden::new("initialise", &pgbench);
    // In order: each case starts with the tables of the previous one.
    let cases: [(&[&str], bool); 21] = [
        (&["-I", "d"], true),
        (&["-I", "v"], false),
        (&["-I", "g"], false),
        (&["-I", "G"], false),
        (&[], true),
        (&["-q", "-s", "2", "-F", "70"], true),
        (&["-I", "t"], false),
        (&["-I", "p"], false),
        (&["-I", "dtgvf"], false),
        (&["-s", "2", "--partitions=3", "-n"], true),
        (&["--partitions=4", "--partition-method=HASH", "--foreign-keys"], true),
        // pgbench 15 freezes unless partitions are requested, and then fails.
        (&["-I", "g", "--partitions=4"], true),
        (&["-I", "G v"], true),
        (&["-I", "dtGvp", "--unlogged-tables"], true),
        (&["-I", "dt pgvf", "--init-steps=dtpgvf"], true),
        (&["--tablespace=pg_default", "--index-tablespace=pg_default"], true),
        (&["--tablespace=no\"where"], false),
        (&["-I", "t", "--index-tablespace=nowhere"], true),
        (&["-I", "p", "--index-tablespace=nowhere"], false),
        (&["-I", "dtgp", "-q"], true),
        (&["-I", "gg", "-q"], true),
    ];
    for (arguments, succeeds) in cases {
        let [real, ours] = pgbench.make_both(arguments, &theirs);
        assert_eq!(real.status.success(), succeeds, "{arguments:?}: {real:?}");
        assert_eq!(ours.status.code(), real.status.code(), "{arguments:?}: {ours:?}");
        assert_equivalent(&messages(&ours), &messages(&real), arguments);
        assert_equivalent(&shape(&ours.stdout), &shape(&real.stdout), arguments);
        golden.add(arguments, ours.status.code(), &messages(&ours));
        let [theirs_made, ours_made] = databases.map(|name| pgbench.sorted(name, TABLES));
        assert_eq!(ours_made, theirs_made, "{arguments:?}");
        if succeeds && !theirs_made.is_empty() {
            let [theirs_has, ours_has] = databases.map(|name| pgbench.sorted(name, ROWS));
            assert_eq!(ours_has, theirs_has, "{arguments:?}");
        }
    }
    golden.check();
}

#[test]
fn invalid_options_of_initialisation_are_rejected_as_by_pgbench() {
    let Some(pgbench) = Pgbench::find("init_options") else { return };
    let mut golden = Golden::new("initialise-options", &pgbench);
    let cases: [&[&str]; 20] = [
        &["-i", "-c", "2"],
        &["-i", "-t", "1"],
        &["-i", "-S"],
        &["-i", "one", "two"],
        &["-i", "-F", "9"],
        &["-i", "-F", "101"],
        &["-i", "-F", "full"],
        &["-i", "-I", ""],
        &["-i", "-I", "dtx"],
        &["-i", "--partition-method=list"],
        &["-i", "--partition-method=hash"],
        &["-i", "--partitions=-1"],
        &["-i", "--partitions", "3a"],
        &["-i", "-s", "0"],
        &["-i", "-s", "99999999999"],
        &["-i", "-s", "1 x"],
        &["-q"],
        &["-F", "50"],
        &["--partitions=2", "-S"],
        &["--foreign-keys", "-b", "tpcb@0"],
    ];
    for arguments in cases {
        let (real, ours) = (pgbench.run(arguments), pgbench.ours(arguments));
        assert_eq!((real.status.code(), ours.status.code()), (Some(1), Some(1)), "{arguments:?}");
        let [real, ours] = [real, ours]
            .map(|output| String::from_utf8_lossy(&output.stderr).replace("pgdyno-pgbench", "pgbench"));
        assert_texts_equivalent(&ours, &real, arguments);
        golden.add(arguments, Some(1), &ours.lines().map(str::to_owned).collect::<Vec<_>>());
    }
    golden.check();
}

#[test]
fn several_connections_create_the_same_tables() {
    let Some((pgbench, theirs)) = with_databases("init_jobs") else { return };
    let ours = &pgbench.database.name;
    let program = Path::new(env!("CARGO_BIN_EXE_pgdyno-pgbench"));
    for options in [&["-s", "2"][..], &["-s", "2", "--partitions=3", "--foreign-keys"]] {
        let real = pgbench.make(&pgbench.program, options, &theirs);
        let made = pgbench.make(program, &[options, &["-j", "2"]].concat(), ours);
        assert!(real.status.success() && made.status.success(), "{made:?}");
        for query in [TABLES, ROWS] {
            assert_eq!(pgbench.sorted(ours, query), pgbench.sorted(&theirs, query), "{options:?}");
        }
    }
}

/// Columns of accounts have temporary defaults during the copy, if possible.
#[test]
fn existing_defaults_and_tables_of_others_are_not_changed() {
    let Some(pgbench) = Pgbench::find("defaults") else { return };
    let ours = Path::new(env!("CARGO_BIN_EXE_pgdyno-pgbench"));
    let database = pgbench.database.name.as_str();
    let defaults = "SELECT attname, pg_get_expr(adbin, adrelid) FROM pg_attrdef \
                    JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum ORDER BY 1";
    let made = pgbench.make(ours, &["-q"], database);
    assert!(made.status.success(), "{made:?}");
    let rows = pgbench.sorted(database, ROWS);
    pgbench.query("ALTER TABLE pgbench_accounts ALTER abalance SET DEFAULT 7");
    pgbench.query("ALTER TABLE pgbench_accounts ALTER filler SET DEFAULT 'full'");
    let made = pgbench.make(ours, &["-q", "-I", "g"], database);
    assert!(made.status.success(), "{made:?}");
    assert_eq!(pgbench.sorted(database, ROWS), rows);
    assert_eq!(pgbench.query(defaults), ["abalance|7", "filler|'full'::bpchar"]);
    pgbench.query("ALTER TABLE pgbench_accounts ALTER abalance DROP DEFAULT");
    pgbench.query("ALTER TABLE pgbench_accounts ALTER filler DROP DEFAULT");
    pgbench.query("CREATE ROLE filler LOGIN");
    for table in ["accounts", "branches", "tellers", "history"] {
        pgbench.query(&format!("GRANT INSERT, SELECT, TRUNCATE ON pgbench_{table} TO filler"));
    }
    let made =
        pgbench.command(ours).args(["-i", "-q", "-I", "g", "-U", "filler", database]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    assert_eq!(pgbench.sorted(database, ROWS), rows);
}

#[test]
fn a_failed_initialisation_is_an_error_and_keeps_existing_tables() {
    let Some(pgbench) = Pgbench::find("init_errors") else { return };
    pgbench.query("CREATE TABLE pgbench_tellers (precious text)");
    let ours = pgbench.ours(&["-i"]);
    let errors = String::from_utf8_lossy(&ours.stderr).into_owned();
    let expected =
        "pgdyno-pgbench: error: pgbench_tellers exists and is not pgbench's: its columns are (precious text)";
    assert!(errors.starts_with(expected), "{errors}");
    assert_eq!(ours.status.code(), Some(1));
    assert!(pgbench.query("SELECT precious FROM pgbench_tellers").is_empty());
    let ours = pgbench.ours(&["-i", "-U", "nobody_of_this_name"]);
    let errors = String::from_utf8_lossy(&ours.stderr).into_owned();
    assert!(errors.starts_with("pgdyno-pgbench: error: connection to server on socket "), "{errors}");
    assert!(errors.contains("role \"nobody_of_this_name\" does not exist"), "{errors}");
    assert!(errors.ends_with("error: could not create connection for initialization\n"), "{errors}");
    assert_eq!(ours.status.code(), Some(1));
}

#[test]
fn an_interrupt_does_not_wait_for_a_statement_to_end() {
    let Some(pgbench) = Pgbench::find("init_cancel") else { return };
    let ours = Path::new(env!("CARGO_BIN_EXE_pgdyno-pgbench"));
    assert!(pgbench.make(ours, &["-I", "dt"], &pgbench.database.name).status.success());
    // DROP TABLE waits for a session that never releases its lock.
    let mut holder = pgbench.command(&pgbench.program.with_file_name("psql"));
    let holder = holder.args(["-XAtq", &pgbench.database.name]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = holder.spawn().unwrap();
    let mut orders = holder.stdin.take().unwrap();
    orders.write_all(b"begin; lock table pgbench_accounts; select 'held';\n").unwrap();
    let mut answer = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut answer).unwrap();
    assert_eq!(answer, "held\n");

    let mut command = pgbench.command(ours);
    let waiting =
        command.args(["-i", "-I", "d", &pgbench.database.name]).stderr(Stdio::piped()).spawn().unwrap();
    let waits = "select count(*) from pg_locks where not granted and relation = 'pgbench_accounts'::regclass";
    while pgbench.query(waits) != ["1"] {}
    assert!(Command::new("kill").args(["-INT", &waiting.id().to_string()]).status().unwrap().success());
    // It would wait forever if it waited for the statement.
    let ended = waiting.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(errors.ends_with("error: the load was stopped\n"), "{errors}");
    assert_eq!(ended.status.code(), Some(1));
    while pgbench.query(waits) != ["0"] {}
    drop(orders);
    holder.wait().unwrap();
    assert_eq!(
        pgbench.query("select count(*) from pg_class where relname like 'pgbench_%' and relkind = 'r'"),
        ["4"]
    );
}

#[test]
fn an_interrupt_leaves_the_tables_empty() {
    let Some(pgbench) = Pgbench::find("init_interrupt") else { return };
    let mut command = pgbench.command(Path::new(env!("CARGO_BIN_EXE_pgdyno-pgbench")));
    let mut ours =
        command.args(["-i", "-s", "500", &pgbench.database.name]).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(ours.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains(" tuples ") {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the load ended before it was interrupted");
    }
    assert!(Command::new("kill").args(["-INT", &ours.id().to_string()]).status().unwrap().success());
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("error: the load was stopped\n"), "{rest}");
    assert_eq!(ours.wait().unwrap().code(), Some(1));
    let counts =
        ["accounts", "tellers", "branches"].map(|name| format!("SELECT count(*) FROM pgbench_{name}"));
    assert_eq!(pgbench.query(&counts.join(" UNION ALL ")), ["0", "0", "0"]);
}
