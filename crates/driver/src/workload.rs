//! Interface between workloads and the driver.

use serde_json::{Value, json};

use reactor::{Connection, Error, Nanos};

/// Result of a transaction without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Committed.
    Committed,
    /// Rolled back by design, such as 1% of TPC-C's New-Orders.
    RolledBack,
}

/// Identifies a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientId {
    /// Number within the clients of its target, from 0.
    pub client: u32,
    /// Number of clients of the target.
    pub clients: u32,
    /// Number of its thread, from 0.
    pub thread: u32,
    /// Seed of the client, derived from the run's seed and its number. It is the same for every target.
    pub seed: u64,
}

/// A workload: kinds of transactions, and the users who draw and execute them.
pub trait Workload: Sync {
    /// One client's part.
    type User: User<Tally = Self::Tally>;
    /// Counts of the drawn transactions, to verify their distribution.
    type Tally: Tally;

    /// Names of the kinds of transactions, by index.
    fn kinds(&self) -> Vec<&str>;

    /// Names of the workload's own counters, by index. Each is a sum over all clients of a target: see
    /// [`User::add_to_counters`].
    fn counters(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether clients are due at times of their own: see [`User::due`].
    fn has_due_times(&self) -> bool {
        false
    }

    /// Creates the user of a client.
    fn user(&self, client_id: ClientId) -> Self::User;
}

/// State shared by the users of one target and thread, mostly counters.
pub trait Tally: Default + Send {
    /// Adds the counts of another thread.
    fn merge(&mut self, other: &Self);

    /// The counts of all users of a target for the result, as `docs/reference/engine-protocol.md` has them.
    fn value(&self) -> Value {
        json!({})
    }
}

/// For workloads without a tally.
impl Tally for () {
    fn merge(&mut self, (): &Self) {}
}

/// One simulated user.
///
/// All random values are drawn in [`User::draw`], so that a retry is the same transaction, and so that the
/// measured time excludes work that can be done earlier. [`User::redraw`] is for drivers that do otherwise.
#[allow(async_fn_in_trait)] // Futures stay on the thread that created them, so they need not be Send.
pub trait User {
    /// See [`Workload::Tally`].
    type Tally;

    /// Prepares a connection: settings, prepared statements. Called after every connect, before the first
    /// transaction.
    async fn prepare(&mut self, connection: &mut Connection) -> Result<(), Error>;

    /// Draws the next transaction with all its inputs, counts it, and returns the index of its kind. Not
    /// measured.
    fn draw(&mut self, tally: &mut Self::Tally) -> usize;

    /// Draws another transaction in place of one that is to be attempted again, counts it, and returns the index of its
    /// kind; `None` keeps the transaction.
    #[inline]
    fn redraw(&mut self, _tally: &mut Self::Tally) -> Option<usize> {
        None
    }

    /// Executes the drawn transaction to the end of the server's response.
    ///
    /// After an error the driver skips the rest of the response and rolls back, unless the workload
    /// [restarts](User::restarts) the transaction. A retry calls this again with the same inputs, unless they are
    /// [drawn anew](User::redraw).
    async fn attempt(&mut self, connection: &mut Connection) -> Result<Ending, Error>;

    /// Adds the effects of a transaction to the workload's counters. Called once per transaction, after its last
    /// attempt.
    #[inline]
    fn add_to_counters(&self, _is_committed: bool, _counters: &mut [u64]) {}

    /// Whether the error of the last attempt makes the workload repeat the transaction, whatever the maximum
    /// number of retries. The session is then ready for the next attempt.
    #[inline]
    fn restarts(&self) -> bool {
        false
    }

    /// When the drawn transaction of a closed loop is due: now, or earlier at a rate that the server did not keep. Later,
    /// the client waits and asks again. `slice` is open from the first to the second instant.
    #[inline]
    fn due(&mut self, _slice: (Nanos, Nanos), now: Nanos) -> Nanos {
        now
    }

    /// Keying time before the drawn transaction is sent.
    fn keying(&self) -> Nanos {
        Nanos::ZERO
    }

    /// Think time after the drawn transaction.
    fn thinking(&mut self) -> Nanos {
        Nanos::ZERO
    }
}
