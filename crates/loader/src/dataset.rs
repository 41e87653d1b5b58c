//! What the loader can load: a dataset says what its tables are, what is to be done, and in which order.

use std::borrow::Cow;

use super::error::LoadError;
use super::phase::Phase;
use reactor::{Connection, Error};

/// Which existing tables of a load's names it may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaceable {
    /// None.
    Nothing,
    /// Those with pgdyno's ownership marker.
    Marked,
    /// All that have the workload's columns, as `pgbench -i` does.
    All,
}

/// A table as it is foretold.
pub struct Table {
    /// Its name in the database.
    pub name: Cow<'static, str>,
    /// Rows, exactly or about.
    pub rows: u64,
    /// Bytes on disk with its indexes, about.
    pub bytes_estimated: u64,
}

/// Rows of a table, or of a part of it, cut into groups. A group is some 64 to 200 kB, which is what one flush hands
/// to the socket.
pub trait Rows: Send + Sync {
    /// How many groups there are.
    fn groups(&self) -> u64;
    /// Appends the rows of one group (0..[`Self::groups`]) as COPY BINARY tuples; returns how many.
    fn append(&self, group: u64, out: &mut Vec<u8>) -> u64;
}

/// What one connection does at a stretch.
pub enum Work {
    /// Statements, one after the other, each for itself.
    Statements(Vec<String>),
    /// Rows copied in a transaction, which makes them frozen where the same transaction made the table empty.
    Copy {
        /// What begins the transaction.
        begin: String,
        /// `COPY … FROM STDIN (FORMAT binary …)`.
        copy: String,
        /// What to send.
        rows: Box<dyn Rows>,
        /// What ends the transaction.
        end: String,
    },
}

/// One thing to do for a table.
pub struct Job {
    /// Index in [`Dataset::tables`].
    pub table: usize,
    /// Such as "copy stock": what cannot be done if it fails.
    pub doing: String,
    /// How.
    pub work: Work,
}

/// Jobs that the connections share out, in this order; all are done before the next round begins.
pub struct Round {
    /// What the round belongs to.
    pub phase: Phase,
    /// The step of the user's that it belongs to, by its place and letter, where steps are the user's to choose.
    pub step: Option<(usize, char)>,
    /// The costliest first.
    pub jobs: Vec<Job>,
    /// The rows that the tables hold after it, where that is known without counting.
    pub rows: Option<Vec<u64>>,
}

/// Tables to be loaded.
#[allow(async_fn_in_trait)] // Futures stay on the thread that made them: none of them has to be Send.
pub trait Dataset: Sync {
    /// Settings of every session.
    const SESSION: &'static str;
    /// What is left behind when even cleaning up fails.
    const LEFT_BEHIND: &'static str;

    /// The tables, the costliest first.
    fn tables(&self) -> &[Table];

    /// Connections beyond which some would never have a job.
    fn connections_max(&self) -> u32;

    /// Makes sure that the database may be loaded, before anything is changed there.
    async fn begin(&self, control: &mut Connection, existing: Replaceable) -> Result<(), LoadError>;

    /// What is to be done next, given how many rounds are done; `None` after the last.
    async fn round(&self, done: usize, control: &mut Connection) -> Result<Option<Round>, LoadError>;

    /// What comes after all rounds.
    async fn finish(&self, control: &mut Connection) -> Result<(), LoadError>;

    /// Takes back what a load has done that failed in `phase`; the rows of the tables in `filled` were committed.
    async fn clean_up(&self, control: &mut Connection, phase: Phase, filled: &[usize]) -> Result<(), Error>;
}
