//! Interpreter of scripts for one client: executes commands without the server, and returns other steps to the
//! driver.
//!
//! The driver chooses a script ([`super::script::Scripts::choose`]), calls [`Client::begin`], and then
//! [`Client::step`] until [`Step::End`]. For a retry it restores the generator from before `begin`; variables
//! keep their values, as in pgbench.

#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

use super::expression::{Expression, Scope};
use super::random::{Prng, Streams, ThreadStreams, uniform};
use super::script::Scripts;
use super::script::command::{Action, Command, Sample, Shell, ShellWord, Sleep, SleepTime};
use super::script::error::ScriptError;
use super::script::sql::{Sql, Store};
use super::value::{DebugLine, Value, is_space, leading_int};
use super::variables::{Names, Slot, Variables, is_name};

/// Query protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Simple protocol, with values of variables in the text.
    #[default]
    Simple,
    /// Extended protocol with parameters.
    Extended,
    /// Extended protocol with prepared statements.
    Prepared,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step<'s> {
    /// Nothing to do: the command was executed.
    Done,
    /// Send this. Wait for the response, unless the pipeline is open.
    Sql(&'s Sql),
    /// Sleep this number of microseconds.
    Sleep(i64),
    /// Run this shell command: see [`Client::shell_command`].
    Shell(&'s Shell),
    /// Stop sending Sync. With [`Protocol::Prepared`], prepare the commands up to `\endpipeline` first.
    StartPipeline,
    /// Send Sync and continue.
    SyncPipeline,
    /// Send Sync and wait for all responses.
    EndPipeline,
    /// The script has ended.
    End,
}

/// Error that stops a client: pgbench's log messages, one per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abort {
    /// Messages in order.
    pub messages: Vec<String>,
}

/// State of one client.
#[derive(Clone, Debug)]
pub struct Client {
    /// Number of the client, from 0.
    pub id: u32,
    /// Random generator.
    pub random: Prng,
    /// Variables.
    pub variables: Variables,
    stack: Vec<Value>,
    /// Buffer for the text of a variable.
    text: Vec<u8>,
    script: usize,
    command: usize,
    next: usize,
    /// Whether `next` was reached from a branch that was not taken.
    untaken: bool,
    pipeline: bool,
}

impl Client {
    /// Creates a client before its first script.
    #[must_use]
    pub fn new(id: u32, random: Prng, variables: Variables) -> Self {
        let (stack, text) = (Vec::new(), Vec::new());
        let (untaken, pipeline) = (false, false);
        Self { id, random, variables, stack, text, script: 0, command: 0, next: 0, untaken, pipeline }
    }

    /// Starts a script.
    pub fn begin(&mut self, script: usize) {
        (self.script, self.command, self.next) = (script, 0, 0);
        (self.untaken, self.pipeline) = (false, false);
    }

    /// Index of the script.
    #[must_use]
    pub fn script(&self) -> usize {
        self.script
    }

    /// Index of the command of the last step.
    #[must_use]
    pub fn command(&self) -> usize {
        self.command
    }

    /// Whether a pipeline is open.
    #[must_use]
    pub fn in_pipeline(&self) -> bool {
        self.pipeline
    }

    /// The command of the next step with its index, if it has an effect.
    #[must_use]
    pub fn upcoming<'s>(&self, scripts: &'s Scripts) -> Option<(usize, &'s Command)> {
        let command = scripts.scripts().get(self.script)?.commands.get(self.next)?;
        let is_passed = self.untaken && matches!(command.action, Action::Else { .. } | Action::EndIf);
        (!is_passed).then_some((self.next, command))
    }

    /// Executes the next command or returns what to do. `debug` receives the lines of `debug()`.
    pub fn step<'s>(
        &mut self,
        scripts: &'s Scripts,
        protocol: Protocol,
        debug: &mut dyn FnMut(DebugLine),
    ) -> Result<Step<'s>, Abort> {
        let Some(command) =
            scripts.scripts().get(self.script).and_then(|script| script.commands.get(self.next))
        else {
            return self.end();
        };
        self.command = self.next;
        self.next += 1;
        let untaken = std::mem::take(&mut self.untaken);
        match &command.action {
            Action::Sql(sql) => self.sql(sql),
            Action::Set { word, variable, expression } => {
                let value = self.evaluate(expression, word, scripts, debug)?;
                self.assign(*variable, value, word, scripts)?;
                Ok(Step::Done)
            }
            Action::If { elif: true, end, .. } | Action::Else { end } if !untaken => {
                self.next = end + 1;
                Ok(Step::Done)
            }
            Action::If { word, condition, otherwise, .. } => {
                if !self.evaluate(condition, word, scripts, debug)?.is_true() {
                    (self.next, self.untaken) = (*otherwise, true);
                }
                Ok(Step::Done)
            }
            Action::Else { .. } | Action::EndIf => Ok(Step::Done),
            Action::Sample(sample) => self.sample(sample),
            Action::Sleep(sleep) => self.sleep(sleep, scripts).map(Step::Sleep),
            Action::Shell(shell) => Ok(Step::Shell(shell)),
            Action::StartPipeline | Action::SyncPipeline | Action::EndPipeline => {
                self.pipeline(command, protocol)
            }
        }
    }

    fn end<'s>(&self) -> Result<Step<'s>, Abort> {
        if !self.pipeline {
            return Ok(Step::End);
        }
        let message = format!("client {} aborted: end of script reached with pipeline open", self.id);
        Err(Abort { messages: vec![message] })
    }

    /// An abort at the command of the last step. `word` is its name; `messages` come first.
    #[must_use]
    pub fn abort(&self, messages: Vec<String>, word: &str, reason: &str) -> Abort {
        let (id, command, script) = (self.id, self.command, self.script);
        let last = format!("client {id} aborted in command {command} ({word}) of script {script}; {reason}");
        let messages = messages.into_iter().filter(|message| !message.is_empty()).chain([last]).collect();
        Abort { messages }
    }

    fn sql<'s>(&self, sql: &'s Sql) -> Result<Step<'s>, Abort> {
        match &sql.store {
            Some(store) if self.pipeline => {
                let word = store.word();
                Err(self.abort(vec![], word, &format!("\\{word} is not allowed in pipeline mode")))
            }
            _ => Ok(Step::Sql(sql)),
        }
    }

    fn evaluate(
        &mut self,
        expression: &Expression,
        word: &str,
        scripts: &Scripts,
        debug: &mut dyn FnMut(DebugLine),
    ) -> Result<Value, Abort> {
        let (script, command) = (self.script, self.command);
        let mut scope = Scope {
            names: &scripts.names,
            variables: &mut self.variables,
            random: &mut self.random,
            stack: &mut self.stack,
            debug: &mut |value| debug(DebugLine { script, command, value }),
        };
        let value = expression.evaluate(&mut scope);
        value.map_err(|error| self.abort(vec![error.to_string()], word, "evaluation of meta-command failed"))
    }

    /// Sets a variable. Its name is validated here, so that a script with an invalid name can be parsed.
    fn assign(&mut self, variable: Slot, value: Value, word: &str, scripts: &Scripts) -> Result<(), Abort> {
        if !self.variables.is_defined(variable) && !is_name(scripts.names.get(variable)) {
            let message = format!("{word}: invalid variable name: \"{}\"", scripts.names.text(variable));
            return Err(self.abort(vec![message], "set", "assignment of meta-command failed"));
        }
        self.variables.set(variable, value);
        Ok(())
    }

    fn sample<'s>(&mut self, sample: &Sample) -> Result<Step<'s>, Abort> {
        if sample.values.is_empty() {
            return Err(self.abort(vec![], "sample", &format!("no values of {}", sample.source)));
        }
        let drawn = uniform(&mut self.random, 0, sample.values.len() as i64 - 1);
        self.variables.set_text(sample.variable, sample.values[drawn as usize].as_bytes());
        Ok(Step::Done)
    }

    fn sleep(&mut self, sleep: &Sleep, scripts: &Scripts) -> Result<i64, Abort> {
        let time = match sleep.time {
            SleepTime::Constant(time) => time,
            SleepTime::Variable(slot) => self.sleep_time(slot, scripts).map_err(|problem| {
                let message = format!("{}: {problem}", sleep.word);
                self.abort(vec![message], "sleep", "execution of meta-command failed")
            })?,
        };
        Ok(time.saturating_mul(sleep.unit_us).max(0))
    }

    /// The leading integer of the variable's text. A result of 0 must begin with a digit.
    fn sleep_time(&mut self, slot: Slot, scripts: &Scripts) -> Result<i64, String> {
        let name = || scripts.names.text(slot);
        self.text.clear();
        if !self.variables.write_text(slot, &mut self.text) {
            return Err(format!("undefined variable \"{}\"", name()));
        }
        let time = leading_int(&self.text);
        if time == 0 && !self.text.first().is_some_and(u8::is_ascii_digit) {
            let time = String::from_utf8_lossy(&self.text);
            return Err(format!("invalid sleep time \"{time}\" for variable \"{}\"", name()));
        }
        Ok(time)
    }

    fn pipeline<'s>(&mut self, command: &Command, protocol: Protocol) -> Result<Step<'s>, Abort> {
        let (word, step, opens) = match command.action {
            Action::StartPipeline => ("startpipeline", Step::StartPipeline, true),
            Action::SyncPipeline => ("syncpipeline", Step::SyncPipeline, false),
            _ => ("endpipeline", Step::EndPipeline, false),
        };
        if opens && protocol == Protocol::Simple {
            return Err(self.abort(vec![], word, "cannot use pipeline mode with the simple query protocol"));
        }
        if opens == self.pipeline {
            let reason = if opens { "already in pipeline mode" } else { "not in pipeline mode" };
            return Err(self.abort(vec![], word, reason));
        }
        self.pipeline = step != Step::EndPipeline;
        Ok(step)
    }
}

/// Maximum length of a shell command, including the zero byte and one more byte that pgbench does not use.
pub const COMMAND_BYTES_MAX: usize = 256;

/// Maximum number of bytes read from the first line of the output.
pub const OUTPUT_BYTES_MAX: usize = 63;

impl Client {
    /// Appends the shell command of the last step to `out`, for `/bin/sh -c`.
    pub fn shell_command(&self, scripts: &Scripts, shell: &Shell, out: &mut Vec<u8>) -> Result<(), Abort> {
        let start = out.len();
        for (place, word) in shell.words.iter().enumerate() {
            if place > 0 {
                out.push(b' ');
            }
            match word {
                ShellWord::Literal(text) => out.extend_from_slice(text),
                ShellWord::Variable(slot) => {
                    if !self.variables.write_text(*slot, out) {
                        let problem = format!("undefined variable \":{}\"", scripts.names.text(*slot));
                        return Err(self.shell_failed(scripts, shell, &problem));
                    }
                }
            }
            if out.len() - start >= COMMAND_BYTES_MAX - 1 {
                return Err(self.shell_failed(scripts, shell, "shell command is too long"));
            }
        }
        Ok(())
    }

    /// The abort of a shell command, such as "could not launch shell command" if `\shell` exits with a nonzero
    /// status.
    #[must_use]
    pub fn shell_failed(&self, scripts: &Scripts, shell: &Shell, problem: &str) -> Abort {
        let name = word(scripts, shell, 0).unwrap_or_default();
        let command = if shell.variable.is_some() { "setshell" } else { "shell" };
        self.abort(vec![format!("{name}: {problem}")], command, "execution of meta-command failed")
    }

    /// pgbench's debug line with the output of a `\setshell` command.
    #[must_use]
    pub fn shell_printed(scripts: &Scripts, shell: &Shell, output: &[u8]) -> String {
        let name = word(scripts, shell, 0).unwrap_or_default();
        let parameter = word(scripts, shell, 1).unwrap_or_else(|| "(null)".to_owned());
        let value = String::from_utf8_lossy(output);
        format!("{name}: shell parameter name: \"{parameter}\", value: \"{value}\"")
    }

    /// Stores the output of a `\setshell` command: its first line must be a 32-bit integer.
    pub fn take_shell_output(
        &mut self,
        scripts: &Scripts,
        shell: &Shell,
        output: &[u8],
    ) -> Result<(), Abort> {
        let line = output.split_inclusive(|&byte| byte == b'\n').next().unwrap_or_default();
        let line = &line[..line.len().min(OUTPUT_BYTES_MAX)];
        if line.is_empty() {
            return Err(self.shell_failed(scripts, shell, "could not read result of shell command"));
        }
        if !is_int_line(line) {
            let shown = String::from_utf8_lossy(line);
            let problem = format!("shell command must return an integer (not \"{shown}\")");
            return Err(self.shell_failed(scripts, shell, &problem));
        }
        let Some(variable) = shell.variable else { return Ok(()) };
        let value = Value::Int(i64::from(leading_int(line) as i32));
        self.assign(variable, value, "setshell", scripts).map_err(|abort| {
            let first = abort.messages.into_iter().take(1).collect();
            self.abort(first, "setshell", "execution of meta-command failed")
        })
    }
}

/// A word of the command as written in the script.
fn word(scripts: &Scripts, shell: &Shell, place: usize) -> Option<String> {
    Some(match shell.words.get(place)? {
        ShellWord::Literal(text) => String::from_utf8_lossy(text).into_owned(),
        ShellWord::Variable(slot) => format!(":{}", scripts.names.text(*slot)),
    })
}

/// White space, a sign and digits, white space. A blank line counts as 0.
fn is_int_line(line: &[u8]) -> bool {
    let text = line.trim_ascii();
    let digits = text.strip_prefix(b"+").or(text.strip_prefix(b"-")).unwrap_or(text);
    line.iter().all(|&byte| is_space(byte)) || (!digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
}

/// Splits `-D name=value`. Name and value must not be empty.
pub fn split_definition(option: &str) -> Result<(&str, &str), ScriptError> {
    let wrong = || ScriptError::from(format!("invalid variable definition: \"{option}\""));
    let (name, value) = option.split_once('=').ok_or_else(wrong)?;
    if name.is_empty() || value.is_empty() {
        return Err(wrong());
    }
    if !is_name(name.as_bytes()) {
        return Err(format!("option: invalid variable name: \"{name}\"").into());
    }
    Ok((name, value))
}

/// Initial state of all clients of a run.
#[derive(Clone, Debug)]
pub struct Startup {
    variables: Variables,
    /// Slot of each client's number, unless `-D client_id=` sets a common value.
    client_id: Option<Slot>,
    streams: Streams,
}

impl Startup {
    /// Initial state of a run with `seed`.
    ///
    /// `:scale`, `:random_seed`, `:default_seed` and `:client_id` have defaults, which `definitions` override.
    /// The last definition of a name is used.
    pub fn new(
        names: &mut Names,
        definitions: &[(String, String)],
        scale: i64,
        seed: u64,
        clients: usize,
        threads: usize,
    ) -> Result<Self, ScriptError> {
        let is_given = |name: &str| definitions.iter().any(|(given, _)| given == name);
        let streams = Streams::new(seed, clients, threads, is_given("default_seed"));
        let mut slot =
            |name: &str| names.intern(name.as_bytes()).map_err(|error| ScriptError::from(error.to_string()));
        let mut variables = Variables::default();
        for (name, value) in definitions {
            variables.set_text(slot(name)?, value.as_bytes());
        }
        let own = [
            ("scale", Some(scale)),
            ("random_seed", Some(seed as i64)),
            ("default_seed", streams.default_seed),
        ];
        for (name, value) in own {
            if let Some(value) = value.filter(|_| !is_given(name)) {
                variables.set(slot(name)?, Value::Int(value));
            }
        }
        let client_id = if is_given("client_id") { None } else { Some(slot("client_id")?) };
        Ok(Self { variables, client_id, streams })
    }

    /// Creates a client by its number.
    #[must_use]
    pub fn client(&self, id: u32) -> Client {
        let mut variables = self.variables.clone();
        if let Some(slot) = self.client_id {
            variables.set(slot, Value::Int(i64::from(id)));
        }
        // Clients beyond the planned number also get a generator.
        let random = self.streams.clients.get(id as usize).copied().unwrap_or(Prng::new(u64::from(id)));
        Client::new(id, random, variables)
    }

    /// Generators of the threads.
    #[must_use]
    pub fn threads(&self) -> &[ThreadStreams] {
        &self.streams.threads
    }
}

impl Store {
    /// Name of the command.
    pub fn word(&self) -> &'static str {
        if self.every { "aset" } else { "gset" }
    }
}

/// Variables of the columns of one statement, resolved once per set of columns.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// Names of the columns, each with a trailing zero byte.
    known: Vec<u8>,
    slots: Vec<Option<Slot>>,
}

impl Columns {
    /// The variable of each column; `None` for one that no script uses.
    ///
    /// The error is the complete name of the first invalid variable.
    pub fn slots<'a>(
        &mut self,
        store: &Store,
        names: &Names,
        columns: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> Result<&[Option<Slot>], Vec<u8>> {
        if self.is_known(columns.clone()) {
            return Ok(&self.slots);
        }
        self.known.clear();
        self.slots.clear();
        for column in columns {
            let name = [&store.prefix, column].concat();
            if !is_name(&name) {
                self.known.clear();
                self.slots.clear();
                return Err(name);
            }
            self.known.extend_from_slice(column);
            self.known.push(0);
            self.slots.push(names.find(&name));
        }
        Ok(&self.slots)
    }

    /// The last result of [`Columns::slots`]; empty after an error.
    #[must_use]
    pub fn known(&self) -> &[Option<Slot>] {
        &self.slots
    }

    fn is_known<'a>(&self, columns: impl Iterator<Item = &'a [u8]>) -> bool {
        let mut rest = self.known.as_slice();
        for column in columns {
            let Some(after) = rest.strip_prefix(column).and_then(|rest| rest.strip_prefix(&[0])) else {
                return false;
            };
            rest = after;
        }
        rest.is_empty() && !self.known.is_empty()
    }
}

impl Client {
    /// The abort of `\gset` if a result does not have one row. `query` counts results of a combined command,
    /// from 0.
    #[must_use]
    pub fn wrong_row_count(&self, query: usize, rows: u64) -> Abort {
        let message = format!("{}: expected one row, got {rows}", self.answer(query));
        Abort { messages: vec![message] }
    }

    /// The abort for a column name that is not a valid variable name.
    #[must_use]
    pub fn cannot_store(&self, store: &Store, query: usize, name: &[u8]) -> Abort {
        let name = String::from_utf8_lossy(name);
        let messages = vec![
            format!("{}: invalid variable name: \"{name}\"", store.word()),
            format!("{}: error storing into variable {name}", self.answer(query)),
        ];
        Abort { messages }
    }

    fn answer(&self, query: usize) -> String {
        format!("client {} script {} command {} query {query}", self.id, self.script, self.command)
    }
}
