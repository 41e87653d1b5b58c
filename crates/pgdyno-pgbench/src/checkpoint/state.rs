//! Where each client and thread of a run is.

use serde::{Deserialize, Serialize};

use crate::record::Record;
use pgbench::random::Prng;
use pgbench::random::streams::{ThreadStreams, clients_per_thread};
use pgbench::session::Program;
use pgbench::variables::Variables;
use reactor::Nanos;

/// A client at the begin of a transaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientState {
    /// Its transactions so far, however they ended.
    pub ended: u64,
    /// The script that has been drawn for the transaction, if one has.
    pub script: Option<usize>,
    /// Its generator.
    pub random: Prng,
    /// Its variables.
    pub variables: Variables,
}

/// A thread and its clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadPosition {
    /// The thread's generators.
    pub streams: ThreadStreams,
    /// Time spent on connecting again and again.
    pub connecting: Nanos,
    /// By client, in the order of their numbers.
    pub clients: Vec<ClientState>,
}

/// A thread with all it has recorded.
#[derive(Clone, Serialize, Deserialize)]
pub struct ThreadState {
    /// Where it is.
    pub place: ThreadPosition,
    /// What its clients did until there.
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
