//! pgbench scripts as a workload of the driver. `docs/reference/engine-protocol.md` has the specification.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value as Json;

use super::random::Prng;
use super::run::{Protocol, Startup, split_definition};
use super::script::Scripts;
use super::script::builtin::Builtin;
use super::script::command::Action;
use super::session::{Program, ScriptRunner, Stop};
use super::value::Value;
use driver::{ClientId, Ending, Tally, User, Workload, WorkloadError};
use pgwire::SqlState;
use reactor::{Connection, Error};

const COUNT_BRANCHES: &str = include_str!("count_branches.sql");

/// The workload's part of a specification.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Specification {
    scripts: Vec<ScriptSpecification>,
    /// `:scale`; by default the number of rows of `pgbench_branches`, or 1.
    scale: Option<i64>,
    protocol: Protocol,
    /// pgbench's `-D`: values of variables by name.
    #[serde(default)]
    define: BTreeMap<String, String>,
    /// Values of `\sample NAME FROM SOURCE` by the text after FROM. Without values the command fails with type
    /// `workload`.
    #[serde(default)]
    samples: BTreeMap<String, Vec<String>>,
    /// pgbench's `--random-seed`; by default `seed`.
    random_seed: Option<u64>,
}

/// A script: a built-in one, or a name and a text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptSpecification {
    builtin: Option<String>,
    name: Option<String>,
    text: Option<String>,
    #[serde(default = "one")]
    weight: u32,
}

fn one() -> u32 {
    1
}

/// The pgbench workload.
pub struct Pgbench {
    program: Arc<Program>,
    /// Names of the scripts, which are the kinds of transactions.
    kinds: Vec<String>,
    scale: Scale,
    reads_scale: bool,
}

/// Source of `:scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    /// The specification.
    Given,
    /// The number of rows of pgbench_branches.
    Counted {
        /// Whether pgbench's tables must exist, because a built-in script uses them. Otherwise the scale is 1
        /// without them.
        needs_tables: bool,
    },
}

impl Pgbench {
    /// Reads the workload's part of a specification, for a run with this number of clients and threads.
    pub fn read(workload: &Json, clients: u32, threads: u32, seed: u64) -> Result<Self, WorkloadError> {
        Specification::deserialize(workload)?.compile(clients, threads, seed)
    }

    /// Whether a script reads the variable `:scale`.
    #[must_use]
    pub fn reads_scale(&self) -> bool {
        self.reads_scale
    }

    /// The commands `\sample` of all scripts: name of the script, text of the command, its source.
    pub fn samples(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.program.scripts.scripts().iter().flat_map(|script| {
            script.commands.iter().filter_map(|command| match &command.action {
                Action::Sample(sample) => {
                    Some((script.name.as_str(), command.line.as_str(), sample.source.as_str()))
                }
                _ => None,
            })
        })
    }
}

impl Specification {
    fn compile(&self, clients: u32, threads: u32, seed: u64) -> Result<Pgbench, WorkloadError> {
        let samples = self.samples.iter().map(|(source, values)| (source.clone(), values.as_slice().into()));
        let mut scripts = Scripts::with_samples(samples.collect());
        let mut kinds = Vec::new();
        for script in &self.scripts {
            let kind = script.add(&mut scripts)?;
            if kinds.contains(&kind) {
                return Err(WorkloadError::value(format!("scripts: two are called {kind}")));
            }
            kinds.push(kind);
        }
        scripts.weight().map_err(WorkloadError::value)?;
        let mut definitions = Vec::new();
        for (name, value) in &self.define {
            split_definition(&format!("{name}={value}")).map_err(WorkloadError::value)?;
            definitions.push((name.clone(), value.clone()));
        }
        let needs_tables = self.scripts.iter().any(|script| script.builtin.is_some());
        let scale = match self.scale {
            Some(1..) => Scale::Given,
            Some(other) => {
                return Err(WorkloadError::value(format!("scale: {other} is not a positive number")));
            }
            None if self.define.contains_key("scale") => Scale::Given,
            None => Scale::Counted { needs_tables },
        };
        let reads_scale = scripts.names.find(b"scale").is_some();
        let (seed, clients, threads) = (self.random_seed.unwrap_or(seed), clients as usize, threads as usize);
        let given = self.scale.unwrap_or(1);
        let startup = Startup::new(&mut scripts.names, &definitions, given, seed, clients, threads);
        let startup = startup.map_err(WorkloadError::value)?;
        let program = Program::new(scripts, self.protocol, startup).map_err(WorkloadError::value)?;
        Ok(Pgbench { program: Arc::new(program), kinds, scale, reads_scale })
    }
}

impl ScriptSpecification {
    /// Adds the script and returns the name of its kind.
    fn add(&self, scripts: &mut Scripts) -> Result<String, WorkloadError> {
        let (kind, name, text) = match (&self.builtin, &self.name, &self.text) {
            (Some(builtin), None, None) => {
                let builtin = Builtin::find(builtin).map_err(WorkloadError::value)?;
                (builtin.name, builtin.description, builtin.text)
            }
            (None, Some(name), Some(text)) => (name.as_str(), name.as_str(), text.as_str()),
            _ => return Err(WorkloadError::value("scripts: each has either builtin, or name and text")),
        };
        scripts.add(name, text.as_bytes(), self.weight).map_err(WorkloadError::value)?;
        Ok(kind.to_owned())
    }
}

impl Workload for Pgbench {
    type User = ScriptUser;
    type Tally = ScriptChoice;

    fn kinds(&self) -> Vec<&str> {
        self.kinds.iter().map(String::as_str).collect()
    }

    fn user(&self, client_id: ClientId) -> ScriptUser {
        let runner = ScriptRunner::new(Arc::clone(&self.program), client_id.client);
        ScriptUser { runner, thread: client_id.thread as usize, scale: self.scale }
    }
}

/// Generator for the choice of scripts, shared by the clients of a thread as in pgbench.
#[derive(Default)]
pub struct ScriptChoice(Option<Prng>);

impl Tally for ScriptChoice {
    fn merge(&mut self, _: &Self) {}
}

/// A simulated user that runs scripts.
pub struct ScriptUser {
    runner: ScriptRunner,
    thread: usize,
    /// `Counted` until it has been counted.
    scale: Scale,
}

impl ScriptUser {
    async fn count_scale(&mut self, connection: &mut Connection, needs_tables: bool) -> Result<(), Error> {
        let scale = match connection.simple(COUNT_BRANCHES).await {
            Ok(rows) => rows.into_iter().flatten().flatten().next().and_then(|count| count.parse().ok()),
            Err(error) if error.sqlstate() == Some(SqlState::UNDEFINED_TABLE) => None,
            Err(error) => return Err(error),
        };
        let scale = match scale {
            Some(0) | None if needs_tables => {
                return Err(Error::Workload(
                    "there are no rows in pgbench_branches; initialise the database with pgbench -i"
                        .to_owned(),
                ));
            }
            scale => scale.unwrap_or(1_i64),
        };
        if let Some(slot) = self.runner.program.scripts.names.find(b"scale") {
            self.runner.client_mut().variables.set(slot, Value::Int(scale));
        }
        self.scale = Scale::Given;
        Ok(())
    }
}

impl User for ScriptUser {
    type Tally = ScriptChoice;

    async fn prepare(&mut self, connection: &mut Connection) -> Result<(), Error> {
        self.runner.reconnected();
        match self.scale {
            Scale::Given => Ok(()),
            Scale::Counted { needs_tables } => self.count_scale(connection, needs_tables).await,
        }
    }

    #[inline]
    fn draw(&mut self, choice: &mut ScriptChoice) -> usize {
        let program = &self.runner.program;
        let choose = choice.0.get_or_insert_with(|| program.startup.threads()[self.thread].choose);
        let script = program.scripts.choose(choose);
        self.runner.begin(script);
        script
    }

    #[inline]
    async fn attempt(&mut self, connection: &mut Connection) -> Result<Ending, Error> {
        match self.runner.attempt(connection).await {
            Ok(()) => Ok(Ending::Committed),
            Err(Stop::Session(error)) => Err(error),
            Err(Stop::Script(abort) | Stop::LeftOpen(abort)) => {
                Err(Error::Workload(abort.messages.join("; ")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sound() -> Json {
        json!({"protocol": "prepared", "scale": null, "define": {"x": "1"}, "random_seed": 5,
            "scripts": [{"builtin": "tpcb-like", "weight": 2}, {"name": "f.sql", "text": "select :x, :scale;"}]})
    }

    #[test]
    fn a_valid_specification_is_read_and_its_kinds_are_its_scripts() {
        let workload = Pgbench::read(&sound(), 4, 2, 1).expect("sound");
        assert_eq!(workload.kinds(), ["tpcb-like", "f.sql"]);
        assert_eq!(workload.scale, Scale::Counted { needs_tables: true });
        let mut defined = sound();
        defined["define"] = json!({"scale": "7"});
        assert_eq!(Pgbench::read(&defined, 4, 2, 1).expect("sound").scale, Scale::Given);
    }

    #[test]
    fn an_invalid_specification_is_rejected_with_its_problem() {
        let cases = [
            ("protocol", json!("binary"), "unknown variant `binary`"),
            ("scale", json!(0), "scale: 0 is not a positive number"),
            ("define", json!({"1x": "1"}), "invalid variable name: \"1x\""),
            ("define", json!({"x": ""}), "invalid variable definition: \"x=\""),
            ("scripts", json!([]), "total script weight must not be zero"),
            ("scripts", json!([{"builtin": "s"}]), "ambiguous builtin name"),
            (
                "scripts",
                json!([{"builtin": "tpcb-like", "text": "select 1"}]),
                "either builtin, or name and text",
            ),
            ("scripts", json!([{"name": "f", "text": "\\set x"}]), "f:1: syntax error in command \"set\""),
            ("scripts", json!([{"builtin": "tpcb-like"}, {"builtin": "tpcb"}]), "two are called tpcb-like"),
            (
                "scripts",
                json!([{"builtin": "tpcb-like", "weight": 0}]),
                "total script weight must not be zero",
            ),
            ("unknown", json!(1), "unknown field `unknown`"),
        ];
        for (key, value, expected) in cases {
            let mut workload = sound();
            workload[key] = value;
            let problem = Pgbench::read(&workload, 4, 2, 1).err().expect(key).to_string();
            assert!(problem.starts_with("workload: ") && problem.contains(expected), "{key}: {problem}");
        }
    }
}
