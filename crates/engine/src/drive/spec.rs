//! The specification of a run, as it comes in: `docs/engine.md`.

use std::thread;

use serde::Deserialize;

use crate::io::{Io, Nanos};

/// As many clients as one target may have.
pub const CLIENTS_MAX: u32 = 2000;
/// As many threads as an engine may have: more than any machine of ours has cores.
pub const THREADS_MAX: u32 = 256;
/// The longest time that can be asked for: a week.
const LONGEST_S: f64 = 7.0 * 86_400.0;

/// A run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The servers, in the order of their index.
    pub targets: Vec<Target>,
    /// What the clients do: read by the workload that its `kind` names.
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
    /// The start of each measured slice that is not counted.
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

/// A server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// What the user calls it.
    pub name: String,
    /// How to reach it.
    pub conninfo: String,
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

/// A time during which one target is driven.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slice {
    /// Index of the target.
    pub target: usize,
    /// Whether it counts.
    pub role: Role,
    /// How long.
    #[serde(rename = "duration_s", deserialize_with = "seconds")]
    pub duration: Nanos,
}

/// What a slice is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// To get the server to its working temperature; counted in the totals only.
    WarmUp,
    /// To be counted.
    Measure,
}

fn seconds<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Nanos, D::Error> {
    let value = f64::deserialize(deserializer)?;
    if !(0.0..=LONGEST_S).contains(&value) {
        return Err(serde::de::Error::custom(format!("{value} s is not between 0 and a week")));
    }
    Ok(Nanos::from_s(value))
}

impl Spec {
    /// Reads and checks a specification. The error is one line for a person.
    pub fn read(text: &str) -> Result<Self, String> {
        let spec: Self = serde_json::from_str(text).map_err(|e| format!("specification: {e}"))?;
        match spec.problem() {
            Some(problem) => Err(format!("specification: {problem}")),
            None => Ok(spec),
        }
    }

    /// As many threads as asked for, but no more than clients; or else what ADR 2 found: one for every two cores, but one
    /// for every client where there are no more of them than cores.
    #[must_use]
    pub fn threads_used(&self) -> u32 {
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        let chosen = if self.clients <= cores { self.clients } else { cores.div_ceil(2) };
        self.threads.unwrap_or(chosen).min(self.clients)
    }

    fn problem(&self) -> Option<String> {
        if self.targets.is_empty() {
            return Some("targets: there is none".to_owned());
        }
        if !(1..=CLIENTS_MAX).contains(&self.clients) {
            return Some(format!("clients: {} is not between 1 and {CLIENTS_MAX}", self.clients));
        }
        if self.threads.is_some_and(|threads| !(1..=THREADS_MAX).contains(&threads)) {
            return Some(format!("threads: not between 1 and {THREADS_MAX}"));
        }
        if self.interval < Nanos(1_000_000) {
            return Some("interval_s: less than a millisecond".to_owned());
        }
        if let Some(rate) = self.rate {
            if !(rate.per_s > 0.0 && rate.per_s <= 1e9) {
                return Some("rate: per_s is not between 0 and a thousand million".to_owned());
            }
            if self.pacing != Pacing::None {
                return Some("rate: an open loop cannot have pacing by keying and thinking".to_owned());
            }
        }
        self.slices.iter().enumerate().find_map(|(index, slice)| {
            if slice.target >= self.targets.len() {
                return Some(format!("slices[{index}]: there is no target {}", slice.target));
            }
            let measures = slice.role == Role::Measure;
            (measures && slice.duration <= self.discard)
                .then(|| format!("slices[{index}]: nothing is left of it after discard_s"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Spec;
    use serde_json::{Value, json};

    fn sound() -> Value {
        json!({"targets": [{"name": "a", "conninfo": ""}], "workload": {"kind": "select-only", "accounts": 1},
            "clients": 1, "threads": null, "seed": 1, "pacing": "none", "rate": null, "retries_max": 1,
            "slices": [{"target": 0, "role": "warm-up", "duration_s": 1}, {"target": 0, "role": "measure", "duration_s": 1.5}],
            "discard_s": 0.05, "interval_s": 1, "barriers": true, "connect_timeout_s": 10, "drain_timeout_s": 5})
    }

    #[test]
    fn a_sound_specification_is_read() {
        let spec = Spec::read(&sound().to_string()).expect("sound");
        assert_eq!(spec.slices[1].duration.0, 1_500_000_000);
        assert_eq!(spec.discard.0, 50_000_000);
    }

    #[test]
    fn a_wrong_specification_is_refused_with_what_is_wrong() {
        let cases: [(&str, Value, &str); 11] = [
            ("/clients", json!(0), "clients"),
            ("/clients", json!(2001), "clients"),
            ("/threads", json!(0), "threads"),
            ("/targets", json!([]), "targets"),
            ("/slices/0/target", json!(1), "no target 1"),
            ("/slices/1/duration_s", json!(0.05), "nothing is left"),
            ("/slices/0/duration_s", json!(-1), "not between"),
            ("/interval_s", json!(0), "interval_s"),
            ("/rate", json!({"per_s": 0, "arrivals": "constant"}), "per_s"),
            ("/pacing", json!("sometimes"), "sometimes"),
            ("/seed", json!({"unknown": 1}), "invalid type"),
        ];
        for (place, value, expected) in cases {
            let mut spec = sound();
            *spec.pointer_mut(place).expect("a place of the specification") = value;
            let problem = Spec::read(&spec.to_string()).expect_err(place);
            assert!(problem.contains(expected), "{place}: {problem}");
        }
        let mut spec = sound();
        spec["unknown"] = json!(1);
        assert!(Spec::read(&spec.to_string()).expect_err("an unknown key").contains("unknown"));
    }
}
