//! Slices of a specification.

use serde::{Deserialize, Serialize};

use super::super::error::AmbiguousTargets;
use super::{Spec, TRANSACTIONS_MAX, seconds};
use reactor::{CORES_MAX, Nanos};

/// A time slice during which one or several targets are driven.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Written")]
pub struct Slice {
    /// Indices of the targets.
    pub targets: Vec<usize>,
    /// CPUs of each target, in the order of `targets`, for its server and the threads that drive it. Empty: not
    /// pinned.
    pub cores: Vec<Vec<usize>>,
    /// Whether the slice is measured.
    pub role: Role,
    /// Maximum duration.
    pub duration: Nanos,
    /// Maximum number of transactions per client.
    pub transactions: Option<u64>,
}

/// Role of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Warm-up: counted in the totals only.
    WarmUp,
    /// Measured.
    Measure,
}

/// A slice as in the JSON specification.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    target: Option<usize>,
    targets: Option<Vec<usize>>,
    #[serde(default)]
    cores: Vec<Vec<usize>>,
    role: Role,
    #[serde(rename = "duration_s", deserialize_with = "seconds")]
    duration: Nanos,
    transactions: Option<u64>,
}

impl TryFrom<Written> for Slice {
    type Error = AmbiguousTargets;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        let Written { target, targets, cores, role, duration, transactions } = written;
        let targets = match (target, targets) {
            (Some(target), None) => vec![target],
            (None, Some(targets)) => targets,
            _ => return Err(AmbiguousTargets),
        };
        Ok(Self { targets, cores, role, duration, transactions })
    }
}

impl Slice {
    /// The problem of the slice in this specification, if any.
    pub(super) fn problem(&self, spec: &Spec) -> Option<String> {
        if self.targets.is_empty() {
            return Some("targets: must not be empty".to_owned());
        }
        for (place, &target) in self.targets.iter().enumerate() {
            if target >= spec.targets.len() {
                return Some(format!("there is no target {target}"));
            }
            if self.targets[..place].contains(&target) {
                return Some(format!("targets: duplicate index {target}"));
            }
        }
        if self.transactions.is_some_and(|each| !(1..=TRANSACTIONS_MAX).contains(&each)) {
            return Some(format!("transactions: not between 1 and {TRANSACTIONS_MAX}"));
        }
        if self.transactions.is_some() && self.targets.len() > 1 {
            return Some("transactions: not allowed in a slice of several targets".to_owned());
        }
        if self.role == Role::Measure && self.duration <= spec.discarded(self) {
            return Some("duration_s: must be greater than discard_s".to_owned());
        }
        self.problem_of_cores()
    }

    fn problem_of_cores(&self) -> Option<String> {
        if self.cores.is_empty() {
            return None;
        }
        if self.cores.len() != self.targets.len() || self.cores.iter().any(Vec::is_empty) {
            return Some("cores: each target needs at least one core".to_owned());
        }
        let mut all: Vec<usize> = self.cores.iter().flatten().copied().collect();
        all.sort_unstable();
        if all.windows(2).any(|pair| pair[0] == pair[1]) {
            return Some("cores: duplicate core number".to_owned());
        }
        (all.last() >= Some(&CORES_MAX))
            .then(|| format!("cores: a core number is greater than {}", CORES_MAX - 1))
    }
}
