//! Interpreter of scripts for one client: executes commands without the server, and returns other steps to the
//! driver.
//!
//! The driver chooses a script ([`super::script::Scripts::choose`]), calls [`Client::begin`], and then
//! [`Client::step`] until [`Step::End`]. For a retry it restores the generator from before `begin`; variables
//! keep their values, as in pgbench.

pub mod shell;
mod startup;
mod store;

#[cfg(test)]
mod tests;

pub use startup::{Startup, split_definition};
pub use store::Columns;

use super::expression::{Expression, Scope};
use super::random::Prng;
use super::random::distribution::uniform;
use super::script::Scripts;
use super::script::command::{Action, Command, Sample, Shell, Sleep, SleepTime};
use super::script::sql::Sql;
use super::value::parse::leading_int;
use super::value::{DebugLine, Value};
use super::variables::{Slot, Variables, is_name};

/// Invalid time of `\sleep`, with pgbench's message.
#[derive(Debug, thiserror::Error)]
enum SleepTimeError {
    #[error("undefined variable \"{variable}\"")]
    Undefined { variable: String },
    #[error("invalid sleep time \"{time}\" for variable \"{variable}\"")]
    Invalid { time: String, variable: String },
}

/// Query protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Simple protocol, with values of variables in the text.
    Simple,
    /// Extended protocol with parameters.
    Extended,
    /// Extended protocol with prepared statements.
    Prepared,
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
    fn sleep_time(&mut self, slot: Slot, scripts: &Scripts) -> Result<i64, SleepTimeError> {
        let name = || scripts.names.text(slot);
        self.text.clear();
        if !self.variables.write_text(slot, &mut self.text) {
            return Err(SleepTimeError::Undefined { variable: name() });
        }
        let time = leading_int(&self.text);
        if time == 0 && !self.text.first().is_some_and(u8::is_ascii_digit) {
            let time = String::from_utf8_lossy(&self.text).into_owned();
            return Err(SleepTimeError::Invalid { time, variable: name() });
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
