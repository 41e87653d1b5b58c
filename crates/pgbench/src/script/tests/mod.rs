#![allow(clippy::unwrap_used, clippy::panic)]

mod errors;
mod properties;
mod splitting;
mod structure;

use super::*;

/// The commands of a script.
fn read(text: &str) -> Vec<Command> {
    let mut scripts = Scripts::default();
    scripts.add("s.sql", text.as_bytes(), 1).unwrap_or_else(|error| panic!("{text}: {error}"));
    scripts.all.pop().unwrap().commands
}

/// The texts of the SQL commands of a script.
fn statements(text: &str) -> Vec<String> {
    let sql = |command: Command| match command.action {
        Action::Sql(sql) => Some(String::from_utf8(sql.text).unwrap()),
        _ => None,
    };
    read(text).into_iter().filter_map(sql).collect()
}
