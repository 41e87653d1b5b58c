//! pgbench's language compared with the real pgbench: the same values, SQL, and meaning of messages.
//!
//! The text of messages depends on minor versions: `wording` compares their meaning, and `golden` contains the
//! exact output. The tests need pgbench of PostgreSQL 15 or newer next to the server's programs, because
//! earlier versions have another random generator.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod allocations;
mod cases;
mod command;
mod connections;
mod detail;
mod expressions;
mod failures;
mod files;
mod golden;
mod history;
mod initialise;
mod libpq;
mod log;
mod messages;
mod newer;
mod scripts;
mod values;
mod wording;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

use pgbench::random::{Prng, uniform};

use test_server::{Database, Server};

/// The real pgbench, with a database and a directory for scripts.
struct Pgbench {
    program: PathBuf,
    database: Database,
}

impl Pgbench {
    fn find(test: &str) -> Option<Self> {
        Some(Self { program: Self::program()?, database: Database::create(test)? })
    }

    /// With a server that no other test uses.
    fn find_alone(test: &str) -> Option<Self> {
        let program = Self::program()?;
        Some(Self { program, database: Database::create_on(Server::start(test)?, test) })
    }

    fn program() -> Option<PathBuf> {
        let program = PathBuf::from(env::var_os("PGDYNO_TEST_PG_BIN")?).join("pgbench");
        let Ok(version) = Command::new(&program).arg("--version").output() else {
            eprintln!("skipped: there is no {}", program.display());
            return None;
        };
        let version = String::from_utf8_lossy(&version.stdout).into_owned();
        let major = version.split([' ', '.']).find_map(|part| part.parse::<u32>().ok());
        if major < Some(15) {
            eprintln!("skipped: no pgbench of PostgreSQL 15 or newer");
            return None;
        }
        Some(program)
    }

    fn path(&self, name: &str) -> String {
        self.database.directory.join(name).display().to_string()
    }

    fn script(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(&self.program).arg("-n").args(arguments).arg(&self.database.name).output().unwrap()
    }

    fn ours(&self, arguments: &[&str]) -> Output {
        let program = Path::new(env!("CARGO_BIN_EXE_pgdyno-pgbench"));
        self.command(program).arg("-n").args(arguments).arg(&self.database.name).output().unwrap()
    }

    /// A command for a PostgreSQL program, or for pgdyno-pgbench, that connects to the server.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        let server = self.database.server;
        command.args(["-U", "postgres", "-p", &server.port.to_string(), "-h"]).arg(&server.directory);
        command.env("LC_ALL", "C").env_remove("PGOPTIONS");
        command
    }

    /// Sets a default of the database.
    fn set(&self, setting: &str, value: &str) {
        self.query(&format!("alter database {} set {setting} = '{value}'", self.database.name));
    }

    fn errors(&self, arguments: &[&str]) -> String {
        String::from_utf8_lossy(&self.run(arguments).stderr).into_owned()
    }

    fn query(&self, sql: &str) -> Vec<String> {
        self.query_in(&self.database.name, sql)
    }

    fn query_in(&self, database: &str, sql: &str) -> Vec<String> {
        let mut command = self.command(&self.program.with_file_name("psql"));
        let output = command.args(["-XAtq", "-c", sql, database]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }
}

/// Words drawn from a list, the same in every run.
fn words(prng: &mut Prng, list: &[&str], count: i64) -> String {
    let draw = |prng: &mut Prng| list[uniform(prng, 0, list.len() as i64 - 1) as usize];
    (0..uniform(prng, 1, count)).map(|_| draw(prng)).collect()
}
