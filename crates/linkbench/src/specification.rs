//! What a load and a run are asked for.

use serde::Deserialize;

/// A version of LinkBench: its data, mix and operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Edition {
    /// Facebook's, of 2011.
    #[serde(rename = "2011")]
    Facebook = 0,
    /// That of the fork with PostgreSQL support.
    #[default]
    #[serde(rename = "fork")]
    Fork,
}

/// Distributions of data and operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distributions {
    /// As the programs draw them.
    #[default]
    Executed,
    /// As their configuration files describe them.
    Configured,
}

/// What determines the data, but for their size and seed.
///
/// It is the workload's part of the specification of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Shape {
    /// The edition.
    pub edition: Edition,
    /// The distributions.
    pub distributions: Distributions,
}

impl Shape {
    /// Its text in the comment of the data.
    pub fn text(self) -> &'static str {
        match (self.edition, self.distributions) {
            (Edition::Facebook, Distributions::Executed) => "edition=2011 distributions=executed",
            (Edition::Facebook, Distributions::Configured) => "edition=2011 distributions=configured",
            (Edition::Fork, Distributions::Executed) => "edition=fork distributions=executed",
            (Edition::Fork, Distributions::Configured) => "edition=fork distributions=configured",
        }
    }
}

/// Fewest nodes: with fewer, the distributions of ranks degenerate.
const NODES_MIN: u64 = 100;
/// Most nodes: 2 TB of data.
const NODES_MAX: u64 = 2_000_000_000;

/// The data to load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkBenchTables {
    /// Number of nodes.
    pub nodes: u64,
    /// See [`Edition`].
    #[serde(default)]
    pub edition: Edition,
    /// See [`Distributions`].
    #[serde(default)]
    pub distributions: Distributions,
}

impl LinkBenchTables {
    /// The problem of a number that is out of range.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let is_in_range = (NODES_MIN..=NODES_MAX).contains(&self.nodes);
        (!is_in_range).then(|| format!("nodes: {} is not between {NODES_MIN} and {NODES_MAX}", self.nodes))
    }

    /// What determines the data, but for their size and seed.
    pub(crate) fn shape(&self) -> Shape {
        Shape { edition: self.edition, distributions: self.distributions }
    }
}
