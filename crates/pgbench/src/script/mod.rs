//! Scripts: files with SQL and backslash commands, parsed once for all clients.

pub mod builtin;
pub mod command;
pub mod error;
mod meta;
mod scan;
pub(crate) mod sql;
pub mod weight;
mod words;

#[cfg(test)]
mod tests;

use command::{Action, Command, Samples};
use error::{Place, ScriptError};
use meta::Meta;
use scan::{Scanner, Stop};
use sql::{Sql, Store};

use super::random::{Prng, uniform};
use super::variables::Names;

/// Maximum number of scripts of a run.
pub const SCRIPTS_MAX: usize = 128;

/// Maximum size of a script, which is in memory several times.
pub const SCRIPT_BYTES_MAX: usize = 16 << 20;

/// A script.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// File name, or description of a built-in script.
    pub name: String,
    /// Weight relative to other scripts.
    pub weight: u32,
    /// Commands, at least one.
    pub commands: Vec<Command>,
}

/// The scripts of a run, and the names of all variables.
#[derive(Clone, Debug, Default)]
pub struct Scripts {
    /// Names of the variables in all scripts and options.
    pub names: Names,
    /// Without this map the command `\sample` is invalid, as in pgbench.
    samples: Option<Samples>,
    all: Vec<Script>,
    weight: u64,
    statements: usize,
}

impl Scripts {
    /// No scripts yet; those to be added may draw from these values with `\sample`.
    #[must_use]
    pub fn with_samples(samples: Samples) -> Self {
        Self { samples: Some(samples), ..Self::default() }
    }

    /// Parses a script and adds it to the run. A zero byte ends the text, as in pgbench.
    pub fn add(&mut self, name: &str, text: &[u8], weight: u32) -> Result<(), ScriptError> {
        if text.len() > SCRIPT_BYTES_MAX {
            let message = format!("script \"{name}\" is too large (maximum is {SCRIPT_BYTES_MAX} bytes)");
            return Err(message.into());
        }
        let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
        let mut commands = self.read(name, text)?;
        if commands.is_empty() {
            return Err(format!("empty command list for script \"{name}\"").into());
        }
        if self.all.len() >= SCRIPTS_MAX {
            return Err(format!("at most {SCRIPTS_MAX} SQL scripts are allowed").into());
        }
        meta::link(name, &mut commands)?;
        self.weight += u64::from(weight);
        self.all.push(Script { name: name.to_owned(), weight, commands });
        Ok(())
    }

    /// Scripts in the order in which they were added.
    #[must_use]
    pub fn scripts(&self) -> &[Script] {
        &self.all
    }

    /// Sum of the weights, which must not be 0.
    pub fn weight(&self) -> Result<u64, ScriptError> {
        if self.weight == 0 {
            Err("total script weight must not be zero".to_owned().into())
        } else {
            Ok(self.weight)
        }
    }

    /// Number of SQL commands, the upper bound of [`Sql::number`].
    #[must_use]
    pub fn statements(&self) -> usize {
        self.statements
    }

    /// The SQL commands between the `\startpipeline` at index `command` of a script and the next
    /// `\endpipeline`. pgbench prepares them before it opens the pipeline.
    pub fn in_pipeline(&self, script: usize, command: usize) -> impl Iterator<Item = &Sql> {
        let commands = self.all.get(script).and_then(|script| script.commands.get(command + 1..));
        let inside =
            commands.unwrap_or_default().iter().take_while(|command| command.action != Action::EndPipeline);
        inside.filter_map(|command| if let Action::Sql(sql) = &command.action { Some(sql) } else { None })
    }

    /// Draws the index of the next script. Nothing is drawn if there is only one.
    pub fn choose(&self, prng: &mut Prng) -> usize {
        if self.all.len() < 2 || self.weight == 0 {
            return 0;
        }
        let mut left = uniform(prng, 0, self.weight as i64 - 1);
        let found = self.all.iter().position(|script| {
            left -= i64::from(script.weight);
            left < 0
        });
        found.unwrap_or(0)
    }

    fn read(&mut self, name: &str, text: &[u8]) -> Result<Vec<Command>, ScriptError> {
        let mut commands = Vec::new();
        let mut scanner = Scanner::new(text);
        let mut place = Place { script: name, line_number: 1, start: 0 };
        let mut sql = Vec::new();
        loop {
            sql.clear();
            let stop = scanner.scan(&mut sql);
            self.add_sql(&sql, &mut commands)?;
            match stop {
                Stop::Semicolon => {}
                Stop::End => return Ok(commands),
                Stop::Backslash => {
                    let start = scanner.at - 1;
                    place.line_number += newlines(&text[place.start..start]);
                    place.start = start;
                    let meta =
                        meta::read(text, &mut scanner.at, &mut self.names, self.samples.as_ref(), place)?;
                    let line = || meta::line(text, start, scanner.at);
                    match meta {
                        Some(Meta::Action(action)) => commands.push(Command { line: line(), action }),
                        Some(Meta::Store(store)) => attach(store, &mut commands, place)?,
                        None => {}
                    }
                }
            }
        }
    }

    /// Adds the text from the scanner, unless it is only white space and comments.
    fn add_sql(&mut self, text: &[u8], commands: &mut Vec<Command>) -> Result<(), ScriptError> {
        let Some(text) = without_comments(text) else { return Ok(()) };
        let sql = Sql::parse(text, &mut self.names, self.statements)
            .map_err(|error| ScriptError::from(error.to_string()))?;
        self.statements += 1;
        commands.push(Command { line: sql.first_line(), action: Action::Sql(sql) });
        Ok(())
    }
}

fn newlines(text: &[u8]) -> usize {
    text.split(|&byte| byte == b'\n').count() - 1
}

/// Attaches `\gset` or `\aset` to the preceding command, which must be SQL without one.
fn attach(store: Store, commands: &mut [Command], place: Place<'_>) -> Result<(), ScriptError> {
    let message = "\\gset must follow an SQL command";
    match commands.last_mut() {
        Some(Command { action: Action::Sql(sql), .. }) if sql.store.is_none() => {
            sql.store = Some(store);
            Ok(())
        }
        Some(Command { action: Action::Sql(_), .. }) | None => Err(place.error(message, None, None)),
        Some(Command { line, .. }) => Err(place.error(message, Some(line), None)),
    }
}

/// The text from its first word; `None` without one.
fn without_comments(mut text: &[u8]) -> Option<&[u8]> {
    loop {
        match text {
            [] => return None,
            [b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c, rest @ ..] => text = rest,
            [b'-', b'-', ..] => text = &text[text.iter().position(|&byte| byte == b'\n')? + 1..],
            _ => return Some(text),
        }
    }
}
