//! Position of each client and thread of a run.

use serde::{Deserialize, Serialize};

use crate::record::Record;
use pgbench::random::Prng;
use pgbench::random::streams::{ThreadStreams, clients_per_thread};
use pgbench::session::Program;
use pgbench::variables::Variables;
use reactor::Nanos;

/// A client at the start of a transaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientState {
    /// Number of its completed transactions, with any outcome.
    pub ended: u64,
    /// Script drawn for the transaction, if any.
    pub script: Option<usize>,
    /// Generator.
    pub random: Prng,
    /// Variables.
    pub variables: Variables,
}

/// Position of a thread and its clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadPosition {
    /// Generators of the thread.
    pub streams: ThreadStreams,
    /// Time spent on connecting with `--connect`.
    pub connecting: Nanos,
    /// Clients in the order of their numbers.
    pub clients: Vec<ClientState>,
}

/// Position and record of a thread.
#[derive(Clone, Serialize, Deserialize)]
pub struct ThreadState {
    /// Position.
    pub place: ThreadPosition,
    /// Record of its clients up to this position.
    pub record: Record,
}

impl ThreadState {
    /// All threads of a run before their first transactions.
    #[must_use]
    pub fn all(program: &Program, clients: usize, jobs: usize, is_detailed: bool) -> Vec<Self> {
        let mut ids = 0..;
        let mut client = || {
            let client = program.startup.client(ids.next().unwrap_or_default());
            ClientState { ended: 0, script: None, random: client.random, variables: client.variables }
        };
        let counts = clients_per_thread(clients, jobs).into_iter();
        let threads = counts.zip(program.startup.threads()).map(|(count, streams)| Self {
            place: ThreadPosition {
                streams: *streams,
                connecting: Nanos::ZERO,
                clients: (0..count).map(|_| client()).collect(),
            },
            record: Record::new(&program.scripts, is_detailed),
        });
        threads.collect()
    }
}
