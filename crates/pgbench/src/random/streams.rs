//! Which client and which thread draws from which generator.
//!
//! pgbench seeds one base generator with `--random-seed` and seeds all others with its numbers, in this order:
//! 1. each client's, for its random functions, in the order of the clients;
//! 2. the default seed of the hash functions, unless `-D default_seed=` gives one: then nothing is drawn for it;
//! 3. three for each thread: its choice of scripts, its pacing (`--rate`), its sampling of the log.
//!
//! So a client's numbers depend on the seed and its own number only, and a thread's on how many clients there are.

use serde::{Deserialize, Serialize};

use super::Prng;

/// The three generators of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadStreams {
    /// Chooses scripts by their weights. The clients of a thread share it.
    pub choose: Prng,
    /// Draws the waits of `--rate`.
    pub throttle: Prng,
    /// Draws which transactions are logged under `--sampling-rate`.
    pub sample: Prng,
}

/// All generators of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Streams {
    /// One a client.
    pub clients: Vec<Prng>,
    /// The value of `:default_seed`, if it was drawn.
    pub default_seed: Option<i64>,
    /// One a thread.
    pub threads: Vec<ThreadStreams>,
}

impl Streams {
    /// The generators of a run with `seed`. `default_seed_given` is whether `:default_seed` is defined by the user.
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

/// How many clients each thread has, in order: client 0 is the first of thread 0. The threads that cannot have as many
/// as others are the last. There are never more threads than clients.
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
