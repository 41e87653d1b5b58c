//! Options of initialization, named as in pgbench.

use serde::Deserialize;

/// Maximum scale: with more, keys of tellers do not fit in `integer`.
pub const SCALE_MAX: u32 = 214_748_364;
/// Maximum number of partitions. PostgreSQL plans slowly with thousands of partitions, and creates them one by
/// one.
pub const PARTITIONS_MAX: u32 = 100_000;
/// Maximum number of steps; each may be repeated.
pub const STEPS_MAX: usize = 100;
/// Letters of the steps.
pub const STEPS: &str = "dtgGvpf";

/// Options of initialization.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Initialise {
    /// Number of branches; each has 10 tellers and 100,000 accounts.
    pub scale: u32,
    /// Steps in order: drop, create tables, generate data in the client or (G) in the server, vacuum, primary
    /// keys, foreign keys.
    #[serde(default = "usual_steps")]
    pub steps: String,
    /// Fill factor of the tables in percent.
    #[serde(default = "full")]
    pub fillfactor: u32,
    /// Number of partitions of the accounts; 0 for none.
    #[serde(default)]
    pub partitions: u32,
    /// Partitioning method; range by default.
    #[serde(default)]
    pub partition_method: Option<Method>,
    /// Whether tables are unlogged.
    #[serde(default)]
    pub unlogged: bool,
    /// Tablespace of the tables.
    #[serde(default)]
    pub tablespace: Option<String>,
    /// Tablespace of the primary keys.
    #[serde(default)]
    pub index_tablespace: Option<String>,
    /// Whether foreign keys are created, as the last step unless `steps` contain it.
    #[serde(default)]
    pub foreign_keys: bool,
}

/// Partitioning method of the accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Range of keys.
    Range,
    /// Hash of the key.
    Hash,
}

/// Invalid options, with pgbench's message if it has one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InitialiseError {
    /// A number is out of range.
    #[error("{name}: {value} is not between {low} and {high}")]
    OutOfRange {
        /// Name of the option.
        name: &'static str,
        /// As given.
        value: u32,
        /// Minimum.
        low: u32,
        /// Maximum.
        high: u32,
    },
    /// A partitioning method without partitions.
    #[error("--partition-method requires greater than zero --partitions")]
    MethodWithoutPartitions,
    /// No steps.
    #[error("no initialization steps specified")]
    NoSteps,
    /// More than [`STEPS_MAX`] steps.
    #[error("steps: {0} are more than {STEPS_MAX}")]
    TooManySteps(usize),
    /// An unknown step.
    #[error("unrecognized initialization step \"{0}\"; allowed step characters are: \"{STEPS}\"")]
    UnknownStep(char),
}

impl Initialise {
    /// pgbench's defaults for a scale.
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

    /// Validates the options.
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

    /// The partitioning method, `None` without partitions.
    #[must_use]
    pub fn method(&self) -> Option<Method> {
        (self.partitions > 0).then(|| self.partition_method.unwrap_or(Method::Range))
    }

    /// Effective steps with their positions, including foreign keys if requested.
    #[must_use]
    pub fn steps_in_order(&self) -> Vec<(usize, char)> {
        let wanted = self.foreign_keys && !self.steps.contains('f');
        let steps = self.steps.chars().filter(|&step| step != ' ').chain(wanted.then_some('f'));
        steps.enumerate().collect()
    }
}

/// The first letter that is not a step. Blanks are ignored.
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
