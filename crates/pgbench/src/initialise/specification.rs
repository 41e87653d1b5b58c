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
#[serde(default, deny_unknown_fields)]
pub struct Initialise {
    /// Number of branches; each has 10 tellers and 100,000 accounts.
    pub scale: u32,
    /// Steps in order: drop, create tables, generate data in the client or (G) in the server, vacuum, primary
    /// keys, foreign keys.
    pub steps: String,
    /// Fill factor of the tables in percent.
    pub fillfactor: u32,
    /// Number of partitions of the accounts; 0 for none.
    pub partitions: u32,
    /// Partitioning method; range by default.
    pub partition_method: Option<Method>,
    /// Whether tables are unlogged.
    pub unlogged: bool,
    /// Tablespace of the tables.
    pub tablespace: Option<String>,
    /// Tablespace of the primary keys.
    pub index_tablespace: Option<String>,
    /// Whether foreign keys are created, as the last step unless `steps` contain it.
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

impl Default for Initialise {
    fn default() -> Self {
        Self {
            scale: 0,
            steps: "dtgvp".to_owned(),
            fillfactor: 100,
            partitions: 0,
            partition_method: None,
            unlogged: false,
            tablespace: None,
            index_tablespace: None,
            foreign_keys: false,
        }
    }
}

impl Initialise {
    /// pgbench's defaults for a scale.
    #[must_use]
    pub fn of_scale(scale: u32) -> Self {
        Self { scale, ..Self::default() }
    }

    /// The problem of invalid options, with pgbench's message if it has one.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let ranges = [
            ("scale", self.scale, 1, SCALE_MAX),
            ("fillfactor", self.fillfactor, 10, 100),
            ("partitions", self.partitions, 0, PARTITIONS_MAX),
        ];
        for (name, value, low, high) in ranges {
            if !(low..=high).contains(&value) {
                return Some(format!("{name}: {value} is not between {low} and {high}"));
            }
        }
        if self.partition_method.is_some() && self.partitions == 0 {
            return Some("--partition-method requires greater than zero --partitions".to_owned());
        }
        match self.steps.len() {
            0 => return Some("no initialization steps specified".to_owned()),
            count if count > STEPS_MAX => return Some(format!("steps: {count} are more than {STEPS_MAX}")),
            _ => {}
        }
        let allowed = format!("allowed step characters are: \"{STEPS}\"");
        wrong_step(&self.steps).map(|step| format!("unrecognized initialization step \"{step}\"; {allowed}"))
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
