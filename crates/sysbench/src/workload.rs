//! Scripts of sysbench as a workload of the driver. `docs/reference/engine-protocol.md` describes its events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value as Json;

use driver::{ClientId, Ending, User, Workload, WorkloadError};
use reactor::{Connection, Error, tell};

use super::client::{EventEnd, ScriptClient};
use super::counts::Counts;
use super::links::Links;
use super::lua::ScriptState;
use super::options::OptionValue;
use super::program::{Limits, Program, ScriptError, random_options};
use super::sources::Sources;
use super::{general, stock};

/// The kind of transaction: an event.
const KIND: &str = "event";
/// What scripts print is no event of the engine: it goes to standard error.
fn print(text: &str) {
    tell(text);
}

/// The workload's part of a specification.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Specification {
    script: ScriptSpecification,
    /// Texts that `require` and `dofile` load, besides the stock scripts, by name.
    #[serde(default)]
    modules: BTreeMap<String, String>,
    /// Options of the script and of sysbench, without dashes in front.
    #[serde(default)]
    options: BTreeMap<String, String>,
    /// sysbench's `--rand-seed`: client n sends the statements of thread n. By default it is made from `seed`.
    random_seed: Option<u32>,
    /// Memory of one client's Lua state; 64 MiB by default.
    memory_limit_bytes: Option<usize>,
    /// Maximum time that a script computes without a query; 10 s by default.
    compute_limit_s: Option<f64>,
    /// Whether scripts have all of the libraries `io` and `os`.
    #[serde(default)]
    allow_os: bool,
}

/// One of sysbench's own scripts, or a name and a text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptSpecification {
    stock: Option<String>,
    name: Option<String>,
    text: Option<String>,
}

/// The workload.
pub struct Sysbench {
    program: Arc<Program>,
}

impl Sysbench {
    /// Reads the workload's part of a specification, for a run of so many clients.
    pub fn read(workload: &Json, clients: u32, seed: u64) -> Result<Self, WorkloadError> {
        let program = program_of(workload, clients, seed)?;
        let state =
            ScriptState::new(&program, 0, program.random(0).shared()).map_err(WorkloadError::value)?;
        if state.find("thread_run").is_some() {
            let name = &program.name;
            let problem =
                format!("{name} defines thread_run() and so its own loop; only pgdyno-sysbench can run it");
            return Err(WorkloadError::value(problem));
        }
        if state.find("event").is_none() {
            return Err(WorkloadError::value(format!("{} has no function event()", program.name)));
        }
        Ok(Self { program: Arc::new(program) })
    }
}

/// The program of the workload's part of a specification.
pub(crate) fn program_of(workload: &Json, clients: u32, seed: u64) -> Result<Program, WorkloadError> {
    Specification::deserialize(workload)?.program(clients, seed)
}

impl Specification {
    fn program(&self, clients: u32, seed: u64) -> Result<Program, WorkloadError> {
        let seed = self.random_seed.unwrap_or((seed ^ (seed >> 32)) as u32).max(1);
        let sources = Sources { given: self.modules.clone(), ..Sources::default() };
        let (name, text) = self.script.text()?;
        let mut program = Program::new(&name, &text, sources, clients, seed, print);
        program.limits = self.limits()?;
        let of_random = |name: &str| {
            self.options.get(name).or_else(|| self.options.get(&name.replace('-', "_"))).cloned()
        };
        program.random = random_options(of_random).map_err(WorkloadError::value)?;
        for definition in general::definitions() {
            program.set(&definition.key(), definition.default_value());
        }
        let mut of_script = Vec::new();
        for (name, value) in &self.options {
            let Some(definition) = general::find(name) else {
                of_script.push((name.clone(), value.clone()));
                continue;
            };
            if let Some(problem) = definition.option_type.refusal(name, value) {
                return Err(WorkloadError::value(problem));
            }
            program.set(&definition.key(), definition.option_type.read(value));
        }
        for key in ["threads", "num_threads"] {
            program.set(key, OptionValue::Int(i64::from(clients)));
        }
        program.set("db_driver", OptionValue::Text("pgsql".to_owned()));
        let definitions = program.definitions().map_err(WorkloadError::value)?;
        program.set_options(&definitions, &of_script).map_err(WorkloadError::value)?;
        Ok(program)
    }

    fn limits(&self) -> Result<Limits, WorkloadError> {
        let default = Limits::default();
        let compute = match self.compute_limit_s {
            None => default.compute,
            Some(s) => {
                Duration::try_from_secs_f64(s).ok().filter(|limit| !limit.is_zero()).ok_or_else(|| {
                    WorkloadError::value(format!("compute_limit_s: {s} is not a positive number"))
                })?
            }
        };
        let memory_bytes = self.memory_limit_bytes.unwrap_or(default.memory_bytes);
        if memory_bytes < 1 << 20 {
            return Err(WorkloadError::value(format!(
                "memory_limit_bytes: {memory_bytes} is less than 1 MiB"
            )));
        }
        Ok(Limits { memory_bytes, compute, allow_os: self.allow_os })
    }
}

impl ScriptSpecification {
    fn text(&self) -> Result<(String, String), WorkloadError> {
        match (&self.stock, &self.name, &self.text) {
            (Some(name), None, None) => {
                let text = stock::text(name).ok_or_else(|| {
                    let known = stock::names().collect::<Vec<_>>().join(", ");
                    WorkloadError::value(format!(
                        "script: there is no stock script {name}; there are {known}"
                    ))
                })?;
                Ok((format!("{name}.lua"), text.to_owned()))
            }
            (None, Some(name), Some(text)) => Ok((name.clone(), text.clone())),
            _ => Err(WorkloadError::value("script: has either stock, or name and text")),
        }
    }
}

impl Workload for Sysbench {
    type User = ScriptUser;
    type Tally = ();

    fn kinds(&self) -> Vec<&str> {
        vec![KIND]
    }

    fn counters(&self) -> &'static [&'static str] {
        Counts::NAMES
    }

    fn user(&self, client_id: ClientId) -> ScriptUser {
        let client = ScriptClient::new(Arc::clone(&self.program), client_id.client);
        ScriptUser { client, is_prepared: false, restarts: false }
    }
}

/// One client of sysbench.
pub struct ScriptUser {
    /// An error is reported when the client prepares.
    client: Result<ScriptClient, ScriptError>,
    is_prepared: bool,
    /// Whether the last event is to be run again.
    restarts: bool,
}

/// The driver's connection, which the script gets when it connects.
struct Borrowed<'a> {
    connection: &'a mut Connection,
    is_preparing: bool,
}

impl Links for Borrowed<'_> {
    async fn connect(&mut self) -> Result<u32, Error> {
        if std::mem::replace(&mut self.is_preparing, false) {
            return Ok(0);
        }
        let problem = "a client of the engine has one connection, which it opens in thread_init()";
        Err(Error::Workload(problem.to_owned()))
    }

    fn link(&mut self, number: u32) -> Option<&mut Connection> {
        (number == 0).then_some(&mut *self.connection)
    }
}

impl From<ScriptError> for Error {
    fn from(error: ScriptError) -> Self {
        match error {
            ScriptError::Lua(message) => Self::Workload(message),
            ScriptError::Server { error, .. } => *error,
        }
    }
}

impl User for ScriptUser {
    type Tally = ();

    async fn prepare(&mut self, connection: &mut Connection) -> Result<(), Error> {
        let client = self.client.as_mut().map_err(|error| Error::Workload(error.to_string()))?;
        if std::mem::replace(&mut self.is_prepared, true) {
            client.reload()?;
        }
        if let Some(thread_init) = client.state().find("thread_init") {
            let reactor = connection.reactor().clone();
            let mut links = Borrowed { connection, is_preparing: true };
            client.run(&reactor, thread_init, &mut links).await?;
        }
        Ok(())
    }

    fn draw(&mut self, (): &mut ()) -> usize {
        0
    }

    #[inline]
    async fn attempt(&mut self, connection: &mut Connection) -> Result<Ending, Error> {
        let client = self.client.as_mut().map_err(|error| Error::Workload(error.to_string()))?;
        let reactor = connection.reactor().clone();
        // A script of sysbench 0.5 connects when it first needs to.
        let is_preparing = !client.has_connected();
        let mut links = Borrowed { connection, is_preparing };
        self.restarts = false;
        match client.event(&reactor, &mut links).await? {
            EventEnd::Done => Ok(Ending::Committed),
            EventEnd::Restart => {
                self.restarts = true;
                Err(client.take_restart_error())
            }
            EventEnd::Stop => {
                let problem = "event() returned a value, which ends a run of sysbench; slices of the engine end by time";
                Err(Error::Workload(problem.to_owned()))
            }
        }
    }

    fn restarts(&self) -> bool {
        self.restarts
    }

    fn add_to_counters(&self, _: bool, counters: &mut [u64]) {
        let Ok(client) = &self.client else { return };
        client.add_new_counts(counters);
    }
}
