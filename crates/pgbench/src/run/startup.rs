//! Initial state of the clients of a run: values of `-D` and of pgbench's own variables.

use super::Client;
use crate::random::Prng;
use crate::random::streams::{Streams, ThreadStreams};
use crate::script::error::ScriptError;
use crate::value::Value;
use crate::variables::{Names, Slot, Variables, is_name};

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
