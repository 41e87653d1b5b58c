//! Exact output of pgdyno-pgbench by case, in a file next to this one, because an installed pgbench may have
//! other texts.
//!
//! `PGDYNO_GOLDEN=renew cargo test --release -p pgdyno-pgbench` renews the files; `git diff` shows the changes.

use std::fmt::{Debug, Write};
use std::path::PathBuf;
use std::{env, fs};

use super::Pgbench;
use super::wording::report_in;

/// Output of the cases of one test.
pub struct Golden {
    path: PathBuf,
    /// Texts that vary between runs, and their replacements.
    varying: [(String, &'static str); 4],
    text: String,
}

impl Golden {
    pub fn new(name: &str, pgbench: &Pgbench) -> Self {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/server/golden");
        let database = &pgbench.database;
        let [own, server] =
            [&database.directory, &database.server.directory].map(|path| path.display().to_string());
        let port = database.server.port.to_string();
        let varying =
            [(own, "DIRECTORY"), (server, "DIRECTORY"), (port, "PORT"), (database.name.clone(), "DATABASE")];
        Self { path: path.join(name).with_extension("txt"), varying, text: String::new() }
    }

    pub fn add(&mut self, case: impl Debug, status: Option<i32>, lines: &[String]) {
        let mut entry = format!("# {case:?}: exit status {}\n", status.unwrap_or(-1));
        for line in lines {
            // Texts of the server depend on its version.
            match report_in(line) {
                Some(at) => {
                    let level = line[at..].split_once(' ').map_or("", |(level, _)| level);
                    writeln!(entry, "{}{level}  …", &line[..at]).unwrap();
                }
                None => writeln!(entry, "{line}").unwrap(),
            }
        }
        for (value, name) in &self.varying {
            entry = entry.replace(value, name);
        }
        self.text += &entry;
    }

    /// Panics at the first line that differs from the file.
    pub fn check(self) {
        if env::var_os("PGDYNO_GOLDEN").is_some_and(|value| value == "renew") {
            fs::create_dir_all(self.path.parent().unwrap()).unwrap();
            fs::write(&self.path, &self.text).unwrap();
        }
        let expected = fs::read_to_string(&self.path)
            .unwrap_or_else(|error| panic!("{}: {error}: see golden.rs", self.path.display()));
        for (number, (line, expected)) in self.text.lines().zip(expected.lines()).enumerate() {
            assert_eq!(line, expected, "{}, line {}", self.path.display(), number + 1);
        }
        assert_eq!(self.text.lines().count(), expected.lines().count(), "{}", self.path.display());
    }
}
