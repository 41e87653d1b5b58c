//! Specification of a run: `docs/reference/engine-protocol.md`.

use std::thread;

use pgwire::conninfo::Conninfo;
use reactor::{CORES_MAX, Io, Nanos};
use serde::{Deserialize, Serialize};

use super::error::SpecificationError;

/// Maximum number of clients per target of one engine.
pub const CLIENTS_MAX: u32 = 2000;
/// Maximum number of clients per target of all engines of a run.
pub const RUN_CLIENTS_MAX: u32 = 1_000_000;
/// Maximum number of threads, above the core count of any supported machine.
pub const THREADS_MAX: u32 = 256;
/// Maximum duration: 90 days.
const LONGEST_S: f64 = 90.0 * 86_400.0;
/// Maximum number of transactions per client and slice, more than is possible in the maximum duration.
pub const TRANSACTIONS_MAX: u64 = 1_000_000_000_000;

/// Specification of a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The servers, in the order of their index.
    pub targets: Vec<TargetSpec>,
    /// Workload, read by the implementation for its `kind`. As with other keys here, targets can override it.
    pub workload: serde_json::Value,
    /// Number of clients per target.
    pub clients: u32,
    /// Number of threads; chosen by the engine if omitted.
    pub threads: Option<u32>,
    /// The threads of this engine, if several engines execute the run together.
    pub part: Option<Part>,
    /// I/O interface of connections.
    #[serde(default)]
    pub io: Io,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Pacing of a closed loop.
    #[serde(default)]
    pub pacing: Pacing,
    /// Arrivals of an open loop.
    pub rate: Option<Rate>,
    /// Maximum number of retries per transaction.
    pub retries_max: u32,
    /// Slices in order.
    pub slices: Vec<Slice>,
    /// Discarded start of each measured slice, unless it is limited by transactions.
    #[serde(rename = "discard_s", deserialize_with = "seconds")]
    pub discard: Nanos,
    /// Length of the streamed intervals.
    #[serde(rename = "interval_s", deserialize_with = "seconds")]
    pub interval: Nanos,
    /// Whether to wait for `continue` before the first measured slice and after the last one.
    #[serde(default)]
    pub barriers: bool,
    /// Timeout of connecting one client.
    #[serde(rename = "connect_timeout_s", deserialize_with = "seconds")]
    pub connect_timeout: Nanos,
    /// Timeout of draining a slice.
    #[serde(rename = "drain_timeout_s", deserialize_with = "seconds")]
    pub drain_timeout: Nanos,
}

/// A server, and what differs from the defaults of the run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetSpec {
    /// The user's name for it.
    pub name: String,
    /// Connection parameters.
    pub conninfo: Conninfo,
    /// Overrides [`Spec::workload`].
    pub workload: Option<serde_json::Value>,
    /// Overrides [`Spec::clients`].
    pub clients: Option<u32>,
    /// Overrides [`Spec::threads`]: number of the run's threads.
    pub threads: Option<u32>,
    /// Overrides [`Spec::pacing`].
    pub pacing: Option<Pacing>,
    /// Overrides [`Spec::rate`]. A null means a closed loop.
    #[serde(default, deserialize_with = "given")]
    #[allow(clippy::option_option)] // Omitted, null, or a rate.
    pub rate: Option<Option<Rate>>,
    /// Overrides [`Spec::retries_max`].
    pub retries_max: Option<u32>,
    /// Process ID of the postmaster, if it runs on this machine.
    pub postmaster_pid: Option<u32>,
}

/// Resolved options of one target.
#[derive(Clone, Copy, Debug)]
pub struct Driving<'a> {
    /// See [`Spec::workload`].
    pub workload: &'a serde_json::Value,
    /// Number of clients.
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
    fn problem(&self, is_part: bool) -> Option<String> {
        let [clients_max, threads_max] =
            if is_part { [RUN_CLIENTS_MAX; 2] } else { [CLIENTS_MAX, THREADS_MAX] };
        if !(1..=clients_max).contains(&self.clients) {
            return Some(format!("clients: {} is not between 1 and {clients_max}", self.clients));
        }
        if self.threads.is_some_and(|threads| !(1..=threads_max).contains(&threads)) {
            return Some(format!("threads: not between 1 and {threads_max}"));
        }
        let rate = self.rate?;
        if !(rate.per_s > 0.0 && rate.per_s <= 1e9) {
            return Some("rate: per_s is not between 0 and 1e9".to_owned());
        }
        (self.pacing != Pacing::None)
            .then(|| "rate: an open loop cannot be combined with keying and think times".to_owned())
    }
}

/// Pacing of a closed loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Pacing {
    /// No think time.
    #[default]
    #[serde(rename = "none")]
    None,
    /// Keying and think times of the workload.
    #[serde(rename = "keying-and-thinking")]
    KeyingAndThinking,
}

/// Arrivals of an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Transactions per second of all clients of a target together.
    pub per_s: f64,
    /// Distribution of the arrivals.
    pub arrivals: Arrivals,
}

/// Distribution of the arrivals of an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// At constant intervals.
    Constant,
    /// A Poisson process.
    Poisson,
}

fn seconds<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Nanos, D::Error> {
    let value = f64::deserialize(deserializer)?;
    if !(0.0..=LONGEST_S).contains(&value) {
        return Err(serde::de::Error::custom(format!("{value} s is not between 0 and 90 days")));
    }
    Ok(Nanos::from_s(value))
}

/// Distinguishes null from an omitted key.
#[allow(clippy::option_option)] // This is its purpose.
fn given<'de, D: serde::Deserializer<'de>, V: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<V>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl Spec {
    /// Reads and validates a specification.
    pub fn read(text: &str) -> Result<Self, SpecificationError> {
        // Deserialize from a value: errors then have no line and column, which mean nothing in generated
        // JSON.
        let spec: Self = serde_json::from_value(serde_json::from_str(text)?)?;
        match spec.problem() {
            Some(problem) => Err(SpecificationError::Value { problem }),
            None => Ok(spec),
        }
    }

    /// Resolved options of a target.
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

    /// Resolved options of all targets, in the order of their index.
    pub fn drivings(&self) -> impl Iterator<Item = Driving<'_>> {
        (0..self.targets.len()).map(|target| self.driving(target))
    }

    /// Maximum number of clients of any target.
    pub fn clients_max(&self) -> u32 {
        self.drivings().map(|driving| driving.clients).max().unwrap_or(0)
    }

    /// Number of threads that drive a target, over all engines: as requested, but at most one per client.
    ///
    /// The default follows ADR 2: one thread per two cores, or one per client if there are no more clients than
    /// cores. The target with the most clients determines it for all.
    pub fn threads_of(&self, target: usize) -> u32 {
        let cores = self.cores_of(target);
        let most = self.clients_max();
        let chosen = if most <= cores { most } else { cores.div_ceil(2) };
        let Driving { threads, clients, .. } = self.driving(target);
        threads.unwrap_or(chosen).min(clients)
    }

    /// First thread of a target. Targets that are driven at the same time have separate threads.
    pub fn first_thread_of(&self, target: usize) -> u32 {
        if self.is_duet() { (0..target).map(|before| self.threads_of(before)).sum() } else { 0 }
    }

    /// Threads of this engine: their first number, and their count.
    pub fn own_threads(&self) -> (u32, u32) {
        self.part.map_or_else(|| (0, self.threads_used()), |part| (part.first_thread, part.threads))
    }

    /// Number of clients of a target that this engine runs.
    pub fn own_clients(&self, target: usize) -> u32 {
        let clients = self.driving(target).clients;
        self.part.map_or(clients, |part| part.clients(clients, self.threads_of(target)))
    }

    /// Number of threads of the run, over all its engines.
    pub fn threads_used(&self) -> u32 {
        let end = |target| self.first_thread_of(target) + self.threads_of(target);
        (0..self.targets.len()).map(end).max().unwrap_or(0)
    }

    fn problem(&self) -> Option<String> {
        if self.targets.is_empty() {
            return Some("targets: must not be empty".to_owned());
        }
        for (driving, target) in self.drivings().zip(&self.targets) {
            if let Some(problem) = driving.problem(self.part.is_some()) {
                return Some(format!("target {}: {problem}", target.name));
            }
        }
        if let Some(problem) = self.part.and_then(|part| part.problem(self)) {
            return Some(format!("part: {problem}"));
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

    /// Whether targets are driven at the same time, by separate threads.
    pub fn is_duet(&self) -> bool {
        self.slices.iter().any(|slice| slice.targets.len() > 1)
    }

    /// Whether slices have a CPU partition.
    pub fn is_pinned(&self) -> bool {
        self.slices.iter().any(|slice| !slice.cores.is_empty())
    }

    /// Number of cores available to a target and its threads.
    fn cores_of(&self, target: usize) -> u32 {
        let given = self.slices.iter().flat_map(|slice| slice.targets.iter().zip(&slice.cores));
        let least = given.filter(|(of, _)| **of == target).map(|(_, cores)| cores.len() as u32).min();
        least.unwrap_or_else(|| thread::available_parallelism().map_or(1, |cores| cores.get() as u32))
    }

    /// Number of warm-up slices, all before the first measured one.
    pub fn warm_ups(&self) -> usize {
        self.slices.iter().take_while(|slice| slice.role == Role::WarmUp).count()
    }

    /// Discarded start of a slice. Nothing is discarded if it is limited by transactions.
    pub fn discarded(&self, slice: &Slice) -> Nanos {
        if slice.transactions.is_some() { Nanos::ZERO } else { self.discard }
    }
}

/// Consecutive threads of a run, which this engine executes. Other engines, on other machines, execute the
/// others.
///
/// A thread has the same clients, random numbers and arrivals whichever engine executes it. Therefore the run
/// does not depend on how its threads are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Number of the first thread.
    pub first_thread: u32,
    /// Number of threads.
    pub threads: u32,
}

impl Part {
    /// Number of a target's clients that belong to these threads. Client n belongs to thread n modulo `threads`,
    /// the number of threads of the run.
    fn clients(self, clients: u32, threads: u32) -> u32 {
        let of_thread = |thread| (clients + threads - 1).saturating_sub(thread) / threads;
        (self.first_thread..self.first_thread + self.threads).map(of_thread).sum()
    }

    fn problem(self, spec: &Spec) -> Option<String> {
        let Some(all) = spec.threads else {
            return Some("needs threads, the number of threads of all engines".to_owned());
        };
        if !(1..=THREADS_MAX).contains(&self.threads) {
            return Some(format!("threads: not between 1 and {THREADS_MAX}"));
        }
        if self.first_thread.checked_add(self.threads).is_none_or(|end| end > all) {
            return Some(format!("exceeds the {all} threads of the run"));
        }
        let differs = |driving: Driving<'_>| driving.threads != Some(all) || driving.clients < all;
        if spec.drivings().any(differs) {
            return Some(format!("every target needs {all} threads and at least as many clients"));
        }
        if spec.is_duet() || spec.is_pinned() {
            return Some("not allowed with several targets at once, or with cores".to_owned());
        }
        let most = (0..spec.targets.len()).map(|target| spec.own_clients(target)).max().unwrap_or(0);
        (most > CLIENTS_MAX)
            .then(|| format!("{most} clients exceed {CLIENTS_MAX}, the maximum of one engine"))
    }
}

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
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        let Written { target, targets, cores, role, duration, transactions } = written;
        let targets = match (target, targets) {
            (Some(target), None) => vec![target],
            (None, Some(targets)) => targets,
            _ => return Err("a slice has either a target or targets"),
        };
        Ok(Self { targets, cores, role, duration, transactions })
    }
}

impl Slice {
    /// The problem of the slice in this specification, if any.
    fn problem(&self, spec: &Spec) -> Option<String> {
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
