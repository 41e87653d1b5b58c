//! Interface of datasets: their tables, and the rounds of jobs that load them.

use std::borrow::Cow;

use super::error::LoadError;
use super::phase::Phase;
use super::replace;
use reactor::{Connection, Error};

/// Existing tables with the names of a load that may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaceable {
    /// None.
    Nothing,
    /// Tables with pgdyno's ownership marker.
    Marked,
    /// All tables with the workload's columns, as in `pgbench -i`.
    All,
}

/// Expected properties of a table.
pub struct Table {
    /// Name in the database.
    pub name: Cow<'static, str>,
    /// Number of rows, exact or approximate.
    pub rows: u64,
    /// Approximate bytes on disk, including indexes.
    pub bytes_estimated: u64,
}

/// Rows of a table or a part of it, split into groups. A group has about 64 to 200 kB, the size of one flush.
pub trait Rows: Send + Sync {
    /// Number of groups.
    fn groups(&self) -> u64;
    /// Appends the rows of one group (0..[`Self::groups`]) as COPY BINARY tuples. Returns their number.
    fn append(&self, group: u64, out: &mut Vec<u8>) -> u64;
}

/// Work of one job.
pub enum Work {
    /// Statements in order, each in its own transaction.
    Statements(Vec<String>),
    /// COPY of rows in a transaction. Rows are frozen if the same transaction created or truncated the table.
    Copy {
        /// Statement that begins the transaction.
        begin: String,
        /// `COPY … FROM STDIN (FORMAT binary …)`.
        copy: String,
        /// Rows to send.
        rows: Box<dyn Rows>,
        /// Statement that ends the transaction.
        end: String,
    },
}

impl Work {
    /// Creates a table and fills it in one transaction. `columns`: a list in parentheses; all if empty.
    #[must_use]
    pub fn create_and_copy(create: &str, table: &str, columns: &str, rows: Box<dyn Rows>) -> Self {
        Self::Copy {
            begin: format!("BEGIN; {create}"),
            copy: format!("COPY {table} {columns} FROM STDIN (FORMAT binary, FREEZE)"),
            rows,
            end: "COMMIT".to_owned(),
        }
    }
}

/// One job for a table.
pub struct Job {
    /// Index in [`Dataset::tables`].
    pub table: usize,
    /// Description for error messages, such as "copy stock".
    pub doing: String,
    /// Work of the job.
    pub work: Work,
}

/// Jobs that the connections share, in order. All are completed before the next round.
pub struct Round {
    /// Phase of the round.
    pub phase: Phase,
    /// Initialization step of the user by position and letter, if steps can be chosen.
    pub step: Option<(usize, char)>,
    /// Jobs, the most expensive first.
    pub jobs: Vec<Job>,
    /// Number of rows of each table afterwards, if known without counting.
    pub rows: Option<Vec<u64>>,
}

impl Round {
    /// The round of a phase of [`Phase::OF_NEW_TABLES`]. `copy` and `indexes` make the work of a table, by its index.
    pub fn of_new_tables(
        phase: Phase,
        tables: &[Table],
        copy: impl Fn(usize) -> Work,
        indexes: impl Fn(usize) -> Vec<String>,
    ) -> Self {
        let job = |(index, table): (usize, &Table)| Job {
            table: index,
            doing: format!("{} {}", phase.name(), table.name),
            work: match phase {
                Phase::Create | Phase::Copy => copy(index),
                Phase::Index => Work::Statements(indexes(index)),
                // Before version 14 COPY FREEZE freezes the rows but does not note it in the visibility map. From 13
                // on an autovacuum would come for so many inserts, in the middle of a trial; VACUUM resets their
                // count, and skips the pages that are known to be frozen.
                Phase::Vacuum => Work::Statements(vec![format!("VACUUM {}", table.name)]),
                Phase::Analyze => Work::Statements(vec![format!("ANALYZE {}", table.name)]),
            },
        };
        Self { phase, step: None, jobs: tables.iter().enumerate().map(job).collect(), rows: None }
    }
}

/// A dataset: tables to load.
#[allow(async_fn_in_trait)] // Futures stay on the thread that created them, so they need not be Send.
pub trait Dataset: Sync {
    /// Settings of every session. A crash leaves tables that the next load replaces, so no commit has to be waited
    /// for. What is written is as durable as ever after the next checkpoint.
    const SESSION: &'static str = "SET search_path = public; SET synchronous_commit = off; \
        SET maintenance_work_mem = '256MB'; SET client_min_messages = error";
    /// Description of what remains if cleaning up fails.
    const LEFT_BEHIND: &'static str = "the tables that it filled are still there";

    /// The tables, the most expensive first.
    fn tables(&self) -> &[Table];

    /// Maximum number of connections that can have a job: by default one for each table.
    fn connections_max(&self) -> u32 {
        u32::try_from(self.tables().len()).unwrap_or(u32::MAX)
    }

    /// Checks that the database may be loaded, before any change.
    async fn begin(&self, control: &mut Connection, existing: Replaceable) -> Result<(), LoadError>;

    /// The next round after `done` rounds; `None` after the last one.
    async fn round(&self, done: usize, control: &mut Connection) -> Result<Option<Round>, LoadError>;

    /// Completes the load after all rounds.
    async fn finish(&self, _control: &mut Connection) -> Result<(), LoadError> {
        Ok(())
    }

    /// Cleans up after a failure in `phase`. Rows of the tables in `filled` may be committed.
    async fn clean_up(&self, control: &mut Connection, _phase: Phase, filled: &[usize]) -> Result<(), Error> {
        replace::drop_filled(control, self.tables(), filled).await
    }
}
