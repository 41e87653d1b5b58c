//! What may be asked for: pgbench's options of initialisation, by their names.

use serde::Deserialize;

/// Beyond it the tellers' keys would not fit into `integer`.
pub const SCALE_MAX: u32 = 214_748_364;
/// PostgreSQL plans for thousands of partitions with difficulty, and creates them one after the other.
pub const PARTITIONS_MAX: u32 = 100_000;
/// Steps that anybody could mean; each may come more than once.
pub const STEPS_MAX: usize = 100;
/// The letters of the steps.
pub const STEPS: &str = "dtgGvpf";

/// How the tables are made.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Initialise {
    /// Branches; each has 10 tellers and 100 000 accounts.
    pub scale: u32,
    /// What is done, in order: drop, create tables, generate by the client or (G) the server, vacuum, primary keys,
    /// foreign keys.
    #[serde(default = "usual_steps")]
    pub steps: String,
    /// How full the tables' pages are made, in per cent.
    #[serde(default = "full")]
    pub fillfactor: u32,
    /// Into how many partitions the accounts are divided; 0: none.
    #[serde(default)]
    pub partitions: u32,
    /// How; by range unless told otherwise.
    #[serde(default)]
    pub partition_method: Option<Method>,
    /// Whether the tables survive no crash and need no WAL.
    #[serde(default)]
    pub unlogged: bool,
    /// Where the tables lie.
    #[serde(default)]
    pub tablespace: Option<String>,
    /// Where the primary keys lie.
    #[serde(default)]
    pub index_tablespace: Option<String>,
    /// Whether foreign keys are made, last of all where `steps` have no place for them.
    #[serde(default)]
    pub foreign_keys: bool,
}

/// How the accounts are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// By consecutive keys.
    Range,
    /// By the hash of the key.
    Hash,
}

/// Tables that cannot be made so, in one line, pgbench's own where pgbench has one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InitialiseError {
    /// A number is too low or too high.
    #[error("{name}: {value} is not between {low} and {high}")]
    OutOfRange {
        /// What it is.
        name: &'static str,
        /// As given.
        value: u32,
        /// The lowest that is allowed.
        low: u32,
        /// The highest.
        high: u32,
    },
    /// A method to divide what is not divided.
    #[error("--partition-method requires greater than zero --partitions")]
    MethodWithoutPartitions,
    /// Nothing is to be done.
    #[error("no initialization steps specified")]
    NoSteps,
    /// More steps than are of any use.
    #[error("steps: {0} are more than {STEPS_MAX}")]
    TooManySteps(usize),
    /// A letter that is no step.
    #[error("unrecognized initialization step \"{0}\"; allowed step characters are: \"{STEPS}\"")]
    UnknownStep(char),
}

impl Initialise {
    /// As pgbench makes them where nothing but the scale is said.
    #[must_use]
    pub fn of_scale(scale: u32) -> Self {
        Self {
            scale,
            steps: usual_steps(),
            fillfactor: full(),
            partitions: 0,
            partition_method: None,
            unlogged: false,
            tablespace: None,
            index_tablespace: None,
            foreign_keys: false,
        }
    }

    /// Refuses what cannot be made.
    pub fn check(&self) -> Result<(), InitialiseError> {
        between("scale", self.scale, 1, SCALE_MAX)?;
        between("fillfactor", self.fillfactor, 10, 100)?;
        between("partitions", self.partitions, 0, PARTITIONS_MAX)?;
        if self.partition_method.is_some() && self.partitions == 0 {
            return Err(InitialiseError::MethodWithoutPartitions);
        }
        if self.steps.is_empty() {
            return Err(InitialiseError::NoSteps);
        }
        if self.steps.len() > STEPS_MAX {
            return Err(InitialiseError::TooManySteps(self.steps.len()));
        }
        match wrong_step(&self.steps) {
            Some(step) => Err(InitialiseError::UnknownStep(step)),
            None => Ok(()),
        }
    }

    /// How the accounts are divided, if they are.
    #[must_use]
    pub fn method(&self) -> Option<Method> {
        (self.partitions > 0).then(|| self.partition_method.unwrap_or(Method::Range))
    }

    /// The steps that do something, with their places, the foreign keys among them if they are wanted.
    #[must_use]
    pub fn steps_in_order(&self) -> Vec<(usize, char)> {
        let wanted = self.foreign_keys && !self.steps.contains('f');
        let steps = self.steps.chars().filter(|&step| step != ' ').chain(wanted.then_some('f'));
        steps.enumerate().collect()
    }
}

/// The first letter that is no step. A blank does nothing.
#[must_use]
pub fn wrong_step(steps: &str) -> Option<char> {
    steps.chars().find(|&step| step != ' ' && !STEPS.contains(step))
}

fn between(name: &'static str, value: u32, low: u32, high: u32) -> Result<(), InitialiseError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(InitialiseError::OutOfRange { name, value, low, high })
}

fn usual_steps() -> String {
    "dtgvp".to_owned()
}

fn full() -> u32 {
    100
}
