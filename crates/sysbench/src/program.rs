//! What clients run: a script with its options, and the limits of their states.

use std::collections::HashMap;
use std::time::Duration;

use super::options::{Definition, OptionType, OptionValue};
use super::random::{Distribution, DistributionError, Random, RandomOptions, Xoroshiro, seeds};
use super::sources::Sources;
use reactor::{Error, Shared};

/// Takes what a script prints.
pub type Output = fn(&str);

/// Takes an error of the server: the function of libpq that sysbench would have called, the message, and the query if it is known.
pub type Report = fn(&str, &str, &str);

/// What a script's state may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory of one client's state: sysbench's own scripts need a few hundred kilobytes.
    pub memory_bytes: usize,
    /// How long a script may compute without asking the server for anything: the other clients of its loop wait meanwhile.
    pub compute: Duration,
    /// Whether scripts have all of the libraries `os` and `io`, and all files.
    pub allow_os: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory_bytes: 64 << 20, compute: Duration::from_secs(10), allow_os: false }
    }
}

/// Why a script stopped.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// An error of the script's own, or of the API that it uses.
    #[error("{0}")]
    Lua(String),
    /// The server reported an error that the script did not catch.
    #[error("{message}")]
    Server {
        /// The error as the script got it.
        message: String,
        /// The error as the connection got it.
        error: Box<Error>,
    },
}

/// A script that cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It is no Lua, or fails when it is loaded.
    #[error("{0}")]
    Script(#[from] ScriptError),
    /// An option has no such value.
    #[error("{0}")]
    OptionValue(String),
    /// It has no such option.
    #[error("invalid option: --{name}={value}; options of {script}: {known}")]
    UnknownOption {
        /// The option.
        name: String,
        /// Its value.
        value: String,
        /// The script.
        script: String,
        /// What it has.
        known: String,
    },
}

/// A script, its options and its limits. Clients share it.
#[derive(Clone, Debug)]
pub struct Program {
    /// The script's name in messages: its path as it was given.
    pub name: String,
    /// Its text.
    pub text: String,
    /// Its modules.
    pub sources: Sources,
    /// The command that is run.
    pub command: String,
    /// The command line, as scripts see it.
    pub argv: Vec<String>,
    /// `sysbench.opt`
    pub options: Vec<(String, OptionValue)>,
    /// Options of the command line that the script does not define, where it defines none: sysbench 0.5 made them global variables.
    pub globals: Vec<(String, String)>,
    /// The options of random numbers.
    pub random: RandomOptions,
    /// The generators of clients 0, 1, …
    pub generators: Vec<Xoroshiro>,
    /// The limits.
    pub limits: Limits,
    /// Where clients print.
    pub output: Output,
    /// Where errors of the server are reported.
    pub report: Option<Report>,
    /// The standard streams of commands that scripts run.
    pub shell: Shared,
}

impl Program {
    /// The program of a script for so many clients, without options of its own.
    pub fn new(name: &str, text: &str, sources: Sources, clients: u32, seed: u32, output: Output) -> Self {
        Self {
            name: name.to_owned(),
            text: text.to_owned(),
            sources,
            command: "run".to_owned(),
            argv: Vec::new(),
            options: Vec::new(),
            globals: Vec::new(),
            random: RandomOptions::default(),
            generators: seeds(seed).take(clients.max(1) as usize).collect(),
            limits: Limits::default(),
            output,
            report: None,
            shell: Shared::default(),
        }
    }

    /// The random numbers of a client.
    #[must_use]
    pub fn random(&self, client: u32) -> Random {
        let bits = self.generators.get(client as usize).copied();
        let bits = bits.unwrap_or_else(|| Xoroshiro::new([u64::from(client) + 1, 1]));
        // Clients are far from each other in the permutation, so that no number comes twice.
        let first = self.generators.first().map_or(0, |&bits| bits.clone().next_u64() as u32);
        let distance = u32::MAX / self.generators.len().max(1) as u32;
        Random::new(bits, self.random, first.wrapping_add(distance.wrapping_mul(client)))
    }

    /// Sets the script's options: those given, and the defaults of the others. What the script does not define is an error, unless it
    /// defines nothing: then it is text.
    pub fn set_options(
        &mut self,
        definitions: &[Definition],
        given: &[(String, String)],
    ) -> Result<(), ProgramError> {
        let mut left: HashMap<String, &str> =
            given.iter().map(|(name, value)| (name.replace('-', "_"), value.as_str())).collect();
        for definition in definitions {
            let value = match left.remove(&definition.key()) {
                Some(text) => {
                    if let Some(problem) = definition.option_type.refusal(&definition.name, text) {
                        return Err(ProgramError::OptionValue(problem));
                    }
                    definition.option_type.read(text)
                }
                None => definition.default_value(),
            };
            self.set(&definition.key(), value);
        }
        let is_unknown = |name: &String| left.contains_key(&name.replace('-', "_"));
        for (name, value) in given.iter().filter(|(name, _)| is_unknown(name)) {
            if !definitions.is_empty() {
                let known = definitions.iter().map(|definition| definition.name.as_str()).collect::<Vec<_>>();
                let (name, value, script) = (name.clone(), value.clone(), self.name.clone());
                return Err(ProgramError::UnknownOption { name, value, script, known: known.join(", ") });
            }
            let key = name.replace('-', "_");
            self.set(&key, OptionValue::Text(value.clone()));
            self.globals.push((key, value.clone()));
        }
        Ok(())
    }

    /// Sets one value of `sysbench.opt`.
    pub fn set(&mut self, key: &str, value: OptionValue) {
        self.options.retain(|(known, _)| known != key);
        self.options.push((key.to_owned(), value));
    }
}

/// The options of random numbers, by sysbench's names, of which `given` has some.
pub fn random_options(given: impl Fn(&str) -> Option<String>) -> Result<RandomOptions, DistributionError> {
    let default = RandomOptions::default();
    let int = |name: &str, otherwise: u32| match given(name).map(|text| OptionType::Int.read(&text)) {
        Some(OptionValue::Int(number)) => u32::try_from(number).unwrap_or(u32::MAX),
        _ => otherwise,
    };
    let double = |name: &str, otherwise: f64| match given(name).map(|text| OptionType::Double.read(&text)) {
        Some(OptionValue::Double(number)) => number,
        _ => otherwise,
    };
    RandomOptions {
        distribution: given("rand-type")
            .map_or(Ok(default.distribution), |name| Distribution::find(&name))?,
        iterations: int("rand-spec-iter", default.iterations),
        special_percent: int("rand-spec-pct", default.special_percent),
        special_share_percent: int("rand-spec-res", default.special_share_percent),
        pareto_h: double("rand-pareto-h", default.pareto_h),
        zipfian_exponent: double("rand-zipfian-exp", default.zipfian_exponent),
    }
    .checked()
}
