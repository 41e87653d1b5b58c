//! The interface of workloads to the driver.

use serde_json::Value;

use reactor::{Connection, Error, Nanos};

/// How a transaction that did not fail ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Committed.
    Committed,
    /// Rolled back because the workload wants it so, e.g. TPC-C's one per cent of New-Orders.
    RolledBack,
}

/// Identifies a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientId {
    /// Its number among the clients of its target, from 0.
    pub client: u32,
    /// How many clients the target has.
    pub clients: u32,
    /// The thread that runs it, from 0.
    pub thread: u32,
    /// Its own seed: made of the run's seed and its number, the same for every target.
    pub seed: u64,
}

/// Transactions of some kinds, and the users who draw and carry them out.
pub trait Workload: Sync {
    /// One client's part.
    type User: User<Tally = Self::Tally>;
    /// What is counted of the drawn transactions, to prove that they are drawn as they should be.
    type Tally: Tally;

    /// The names of the kinds of transaction, in the order of their index.
    fn kinds(&self) -> Vec<&str>;

    /// The names of the workload's own counters, in the order of their index. Each is the sum over all clients of a
    /// target: see [`User::add_to_counters`].
    fn counters(&self) -> &'static [&'static str] {
        &[]
    }

    /// Creates the user of a client.
    fn user(&self, client_id: ClientId) -> Self::User;

    /// The tally of one target, of all its users, as the result shows it.
    fn tally(&self, tally: &Self::Tally) -> Value;
}

/// What the users of one target and thread share: counters, above all.
pub trait Tally: Default + Send {
    /// Adds the counts of another thread's users.
    fn merge(&mut self, other: &Self);
}

/// For workloads that count nothing.
impl Tally for () {
    fn merge(&mut self, (): &Self) {}
}

/// One simulated user. Everything that is drawn at random is drawn in [`User::draw`], so that a retry is the same
/// transaction and the measured time holds no work of ours that could be done before.
#[allow(async_fn_in_trait)] // Futures stay on the thread that made them: none of them has to be Send.
pub trait User {
    /// See [`Workload::Tally`].
    type Tally;

    /// Readies a connection: settings, prepared statements. Called after every connect, before the first transaction.
    async fn prepare(&mut self, connection: &mut Connection) -> Result<(), Error>;

    /// Draws the next transaction with all its inputs, counts it, and gives the index of its kind. Not measured.
    fn draw(&mut self, tally: &mut Self::Tally) -> usize;

    /// Carries out the drawn transaction, to the end of the server's answer. After an error the driver reads
    /// the rest of the answer and rolls back; a retry calls this again with the same inputs.
    async fn attempt(&mut self, connection: &mut Connection) -> Result<Ending, Error>;

    /// Adds to the workload's counters what the transaction did that has just committed. Called once per committed
    /// transaction, after its last attempt.
    #[inline]
    fn add_to_counters(&self, _counters: &mut [u64]) {}

    /// How often the last attempt has begun anew by itself: these count as retries, too.
    #[inline]
    fn restarts(&self) -> u32 {
        0
    }

    /// How long the user types before the drawn transaction is sent.
    fn keying(&self) -> Nanos {
        Nanos::ZERO
    }

    /// How long the user thinks after the drawn transaction has ended.
    fn thinking(&mut self) -> Nanos {
        Nanos::ZERO
    }
}
