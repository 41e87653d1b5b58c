//! Durations of the parts of a load.

use std::time::Duration;

use serde_json::{Value, json};

use super::phase::Phase;
use reactor::Usage;

/// Durations by phase, and by initialization step if steps can be chosen.
#[derive(Default)]
pub struct Timing {
    phases: Vec<(Phase, Duration)>,
    steps: Vec<((usize, char), Duration)>,
    /// CPU time of COPY in this process.
    pub cpu_copy: Usage,
}

impl Timing {
    /// Adds the duration of a round.
    pub fn add(&mut self, phase: Phase, step: Option<(usize, char)>, took: Duration) {
        add(&mut self.phases, phase, took);
        if let Some(step) = step {
            add(&mut self.steps, step, took);
        }
    }

    /// Seconds by phase.
    pub fn phases_s(&self) -> Value {
        self.phases.iter().map(|(phase, took)| (phase.name(), took.as_secs_f64())).collect()
    }

    /// Seconds of the steps in order; `None` if they cannot be chosen.
    pub fn steps(&self) -> Option<Value> {
        let of_step = |((_, letter), took): &((usize, char), Duration)| json!({"step": letter, "s": took.as_secs_f64()});
        (!self.steps.is_empty()).then(|| self.steps.iter().map(of_step).collect())
    }
}

fn add<K: PartialEq>(sums: &mut Vec<(K, Duration)>, key: K, took: Duration) {
    match sums.iter_mut().find(|(known, _)| *known == key) {
        Some((_, sum)) => *sum += took,
        None => sums.push((key, took)),
    }
}
