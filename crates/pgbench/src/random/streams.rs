//! Assignment of generators to clients and threads.
//!
//! pgbench seeds one base generator with `--random-seed`, and seeds all others from it in this order:
//! 1. each client's, for its random functions, in the order of clients;
//! 2. the default seed of the hash functions, unless `-D default_seed=` sets it: then nothing is drawn;
//! 3. three per thread: script choice, pacing (`--rate`), sampling of the log.
//!
//! Therefore a client's numbers depend only on the seed and its own number, and a thread's on the number of
//! clients.

use serde::{Deserialize, Serialize};

use super::Prng;

/// The three generators of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadStreams {
    /// Chooses scripts by weight, for all clients of the thread.
    pub choose: Prng,
    /// Draws the intervals of `--rate`.
    pub throttle: Prng,
    /// Selects the transactions to log with `--sampling-rate`.
    pub sample: Prng,
}

/// All generators of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Streams {
    /// One per client.
    pub clients: Vec<Prng>,
    /// Value of `:default_seed`, if it was drawn.
    pub default_seed: Option<i64>,
    /// One per thread.
    pub threads: Vec<ThreadStreams>,
}

impl Streams {
    /// Creates the generators of a run with `seed`. `default_seed_given`: the user defines `:default_seed`.
    #[must_use]
    pub fn new(seed: u64, clients: usize, threads: usize, default_seed_given: bool) -> Self {
        let mut base = Prng::new(seed);
        let clients = (0..clients).map(|_| base.fork()).collect();
        let default_seed = (!default_seed_given).then(|| base.bits() as i64);
        let threads = (0..threads)
            .map(|_| ThreadStreams { choose: base.fork(), throttle: base.fork(), sample: base.fork() })
            .collect();
        Self { clients, default_seed, threads }
    }
}

/// Number of clients per thread, in order: client 0 is the first of thread 0.
///
/// The last threads have fewer clients. There are at most as many threads as clients.
#[must_use]
pub fn clients_per_thread(clients: usize, threads: usize) -> Vec<usize> {
    let threads = threads.min(clients);
    let mut left = clients;
    let mut deal = |thread: usize| {
        let share = left.div_ceil(threads - thread);
        left -= share;
        share
    };
    (0..threads).map(&mut deal).collect()
}
