//! The specification of a run, as it comes in: `docs/reference/engine-protocol.md`.

mod slices;

use std::thread;

use serde::Deserialize;

pub use self::slices::{Role, Slice};
use super::error::SpecificationError;
use reactor::{Io, Nanos};

/// As many clients as one target may have.
pub const CLIENTS_MAX: u32 = 2000;
/// As many threads as an engine may have: more than any machine of ours has cores.
pub const THREADS_MAX: u32 = 256;
/// The longest time that can be asked for: 90 days, and what is not done by then never will be.
const LONGEST_S: f64 = 90.0 * 86_400.0;
/// As many transactions as a client may be asked for in one slice: more than it can do in the longest time.
pub const TRANSACTIONS_MAX: u64 = 1_000_000_000_000;

/// A run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The servers, in the order of their index.
    pub targets: Vec<TargetSpec>,
    /// What the clients do: read by the workload that its `kind` names. As others here, it holds for each
    /// target that has none of its own.
    pub workload: serde_json::Value,
    /// Clients of each target.
    pub clients: u32,
    /// Threads; chosen by the engine if not given.
    #[serde(default)]
    pub threads: Option<u32>,
    /// How connections send and wait.
    #[serde(default)]
    pub io: Io,
    /// The seed of everything random.
    pub seed: u64,
    /// When a client sends its next transaction, in a closed loop.
    #[serde(default)]
    pub pacing: Pacing,
    /// The schedule of an open loop.
    #[serde(default)]
    pub rate: Option<Rate>,
    /// Retries of one transaction.
    pub retries_max: u32,
    /// What to drive when, in order.
    pub slices: Vec<Slice>,
    /// The start of each measured slice that is not counted, unless transactions bound it.
    #[serde(rename = "discard_s", deserialize_with = "seconds")]
    pub discard: Nanos,
    /// The width of the streamed intervals.
    #[serde(rename = "interval_s", deserialize_with = "seconds")]
    pub interval: Nanos,
    /// Whether to wait for `continue` before the first measured slice and after the last.
    #[serde(default)]
    pub barriers: bool,
    /// Limit on connecting one client.
    #[serde(rename = "connect_timeout_s", deserialize_with = "seconds")]
    pub connect_timeout: Nanos,
    /// Limit on draining a slice.
    #[serde(rename = "drain_timeout_s", deserialize_with = "seconds")]
    pub drain_timeout: Nanos,
}

/// A server, and what is different about driving it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetSpec {
    /// What the user calls it.
    pub name: String,
    /// How to reach it.
    pub conninfo: String,
    /// Instead of [`Spec::workload`].
    #[serde(default)]
    pub workload: Option<serde_json::Value>,
    /// Instead of [`Spec::clients`].
    #[serde(default)]
    pub clients: Option<u32>,
    /// Instead of [`Spec::threads`]: so many of the run's.
    #[serde(default)]
    pub threads: Option<u32>,
    /// Instead of [`Spec::pacing`].
    #[serde(default)]
    pub pacing: Option<Pacing>,
    /// Instead of [`Spec::rate`]; a null means that this target's loop is closed.
    #[serde(default, deserialize_with = "given")]
    #[allow(clippy::option_option)] // Not given, a closed loop, an open one.
    pub rate: Option<Option<Rate>>,
    /// Instead of [`Spec::retries_max`].
    #[serde(default)]
    pub retries_max: Option<u32>,
    /// The process of the server that all its others are children of, if it is on this machine.
    #[serde(default)]
    pub postmaster_pid: Option<u32>,
}

/// How one target is driven.
#[derive(Clone, Copy, Debug)]
pub struct Driving<'a> {
    /// See [`Spec::workload`].
    pub workload: &'a serde_json::Value,
    /// Its clients.
    pub clients: u32,
    /// See [`Spec::threads`].
    pub threads: Option<u32>,
    /// See [`Spec::pacing`].
    pub pacing: Pacing,
    /// See [`Spec::rate`].
    pub rate: Option<Rate>,
    /// See [`Spec::retries_max`].
    pub retries_max: u32,
}

impl Driving<'_> {
    fn problem(&self) -> Option<String> {
        if !(1..=CLIENTS_MAX).contains(&self.clients) {
            return Some(format!("clients: {} is not between 1 and {CLIENTS_MAX}", self.clients));
        }
        if self.threads.is_some_and(|threads| !(1..=THREADS_MAX).contains(&threads)) {
            return Some(format!("threads: not between 1 and {THREADS_MAX}"));
        }
        let rate = self.rate?;
        if !(rate.per_s > 0.0 && rate.per_s <= 1e9) {
            return Some("rate: per_s is not between 0 and 1e9".to_owned());
        }
        (self.pacing != Pacing::None)
            .then(|| "rate: an open loop cannot be combined with keying and think times".to_owned())
    }
}

/// Closed-loop pacing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Pacing {
    /// At once.
    #[default]
    #[serde(rename = "none")]
    None,
    /// After keying and thinking, as the workload has it.
    #[serde(rename = "keying-and-thinking")]
    KeyingAndThinking,
}

/// An open loop.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Transactions a second, of all clients of a target together.
    pub per_s: f64,
    /// How they are spread.
    pub arrivals: Arrivals,
}

/// How the transactions of an open loop are spread over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// At equal distances.
    Constant,
    /// Independently of each other.
    Poisson,
}

fn seconds<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Nanos, D::Error> {
    let value = f64::deserialize(deserializer)?;
    if !(0.0..=LONGEST_S).contains(&value) {
        return Err(serde::de::Error::custom(format!("{value} s is not between 0 and 90 days")));
    }
    Ok(Nanos::from_s(value))
}

/// Tells a null from nothing.
#[allow(clippy::option_option)] // That is its purpose.
fn given<'de, D: serde::Deserializer<'de>, V: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<V>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl Spec {
    /// Reads and checks a specification.
    pub fn read(text: &str) -> Result<Self, SpecificationError> {
        let spec: Self = serde_json::from_str(text)?;
        match spec.problem() {
            Some(problem) => Err(SpecificationError::Value { problem }),
            None => Ok(spec),
        }
    }

    /// How a target is driven.
    #[must_use]
    pub fn driving(&self, target: usize) -> Driving<'_> {
        let target = &self.targets[target];
        Driving {
            workload: target.workload.as_ref().unwrap_or(&self.workload),
            clients: target.clients.unwrap_or(self.clients),
            threads: target.threads.or(self.threads),
            pacing: target.pacing.unwrap_or(self.pacing),
            rate: target.rate.unwrap_or(self.rate),
            retries_max: target.retries_max.unwrap_or(self.retries_max),
        }
    }

    /// How all targets are driven, in the order of their index.
    pub fn drivings(&self) -> impl Iterator<Item = Driving<'_>> {
        (0..self.targets.len()).map(|target| self.driving(target))
    }

    /// Clients of the target that has the most.
    #[must_use]
    pub fn clients_max(&self) -> u32 {
        self.drivings().map(|driving| driving.clients).max().unwrap_or(0)
    }

    /// The threads that drive a target: as many as asked for, but no more than clients; or else what ADR 2 found: one for
    /// every two cores, but one for every client where there are no more of them than cores. There the target with the
    /// most clients decides for all.
    #[must_use]
    pub fn threads_of(&self, target: usize) -> u32 {
        let cores = self.cores_of(target);
        let most = self.clients_max();
        let chosen = if most <= cores { most } else { cores.div_ceil(2) };
        let Driving { threads, clients, .. } = self.driving(target);
        threads.unwrap_or(chosen).min(clients)
    }

    /// The first of the threads that drive a target: where targets are driven at the same time, each has its own.
    #[must_use]
    pub fn first_thread_of(&self, target: usize) -> u32 {
        if self.is_duet() { (0..target).map(|before| self.threads_of(before)).sum() } else { 0 }
    }

    /// The threads of the run.
    #[must_use]
    pub fn threads_used(&self) -> u32 {
        let end = |target| self.first_thread_of(target) + self.threads_of(target);
        (0..self.targets.len()).map(end).max().unwrap_or(0)
    }

    fn problem(&self) -> Option<String> {
        if self.targets.is_empty() {
            return Some("targets: must not be empty".to_owned());
        }
        for (driving, target) in self.drivings().zip(&self.targets) {
            if let Some(problem) = driving.problem() {
                return Some(format!("target {}: {problem}", target.name));
            }
        }
        if self.interval < Nanos(1_000_000) {
            return Some("interval_s: less than a millisecond".to_owned());
        }
        let problem = self.slices.iter().enumerate().find_map(|(index, slice)| {
            slice.problem(self).map(|problem| format!("slices[{index}]: {problem}"))
        });
        problem.or_else(|| if self.is_pinned() { self.problem_of_pinning() } else { None })
    }

    fn problem_of_pinning(&self) -> Option<String> {
        if self.slices.iter().any(|slice| slice.cores.is_empty()) {
            return Some("slices: either all of them have cores or none".to_owned());
        }
        let elsewhere = self.targets.iter().find(|target| target.postmaster_pid.is_none())?;
        let TargetSpec { name, .. } = elsewhere;
        Some(format!("target {name}: cores need postmaster_pid, and a server on this machine"))
    }

    /// Whether targets are driven at the same time, and so by threads of their own.
    #[must_use]
    pub fn is_duet(&self) -> bool {
        self.slices.iter().any(|slice| slice.targets.len() > 1)
    }

    /// Whether slices say which cores are whose.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.slices.iter().any(|slice| !slice.cores.is_empty())
    }

    /// As many cores as a target and its threads can count on.
    fn cores_of(&self, target: usize) -> u32 {
        let given = self.slices.iter().flat_map(|slice| slice.targets.iter().zip(&slice.cores));
        let least = given.filter(|(of, _)| **of == target).map(|(_, cores)| cores.len() as u32).min();
        least.unwrap_or_else(|| thread::available_parallelism().map_or(1, |cores| cores.get() as u32))
    }

    /// How many slices come before the first measured one: all of them warm up.
    #[must_use]
    pub fn warm_ups(&self) -> usize {
        self.slices.iter().take_while(|slice| slice.role == Role::WarmUp).count()
    }

    /// The start of a measured slice that is not counted. All that one of transactions was asked for counts.
    #[must_use]
    pub fn discarded(&self, slice: &Slice) -> Nanos {
        if slice.transactions.is_some() { Nanos::ZERO } else { self.discard }
    }
}
