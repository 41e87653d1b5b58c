//! The part of one engine in a run of several.

use serde::Deserialize;

use super::{CLIENTS_MAX, Driving, Spec, THREADS_MAX};

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
    pub(super) fn clients(self, clients: u32, threads: u32) -> u32 {
        let of_thread = |thread| (clients + threads - 1).saturating_sub(thread) / threads;
        (self.first_thread..self.first_thread + self.threads).map(of_thread).sum()
    }

    pub(super) fn problem(self, spec: &Spec) -> Option<String> {
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
