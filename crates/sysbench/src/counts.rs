//! Queries by kind, as sysbench reports them.

/// What a query did, by its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It returned rows.
    Read,
    /// It changed rows.
    Write,
    /// Anything else, such as BEGIN, COMMIT, and an update of no row.
    Other,
}

/// The kinds of error that restart an event, by SQLSTATE: counters have a name for each.
pub const RESTARTING: [&str; 3] = ["40001", "40P01", "23505"];

/// The counters of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Queries that returned rows.
    pub reads: u64,
    /// Queries that wrote.
    pub writes: u64,
    /// Other queries.
    pub others: u64,
    /// Errors after which the event is restarted, by [`RESTARTING`].
    pub restarts: [u64; RESTARTING.len()],
    /// Errors that a hook of the script has ignored.
    pub ignored: u64,
    /// Connections made again.
    pub reconnects: u64,
}

impl Counts {
    /// The names of [`Counts::values`].
    pub const NAMES: &'static [&'static str] = &[
        "queries_read",
        "queries_write",
        "queries_other",
        "restarts_40001",
        "restarts_40P01",
        "restarts_23505",
        "ignored_errors",
        "reconnects",
    ];

    /// The counters by [`Counts::NAMES`].
    #[must_use]
    pub fn values(&self) -> [u64; 8] {
        let [serialization, deadlock, duplicate] = self.restarts;
        let (reads, writes, others) = (self.reads, self.writes, self.others);
        [reads, writes, others, serialization, deadlock, duplicate, self.ignored, self.reconnects]
    }

    /// Counts a query.
    pub fn add(&mut self, class: Class) {
        match class {
            Class::Read => self.reads += 1,
            Class::Write => self.writes += 1,
            Class::Other => self.others += 1,
        }
    }

    /// Counts an error that is not fatal.
    pub fn ignore(&mut self, sqlstate: &str) {
        match RESTARTING.iter().position(|known| *known == sqlstate) {
            Some(kind) => self.restarts[kind] += 1,
            None => self.ignored += 1,
        }
    }

    /// All errors that are not fatal.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.restarts.iter().sum::<u64>() + self.ignored
    }

    /// What was counted since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        self.with(before, |now, before| now - before)
    }

    /// Adds those of another client.
    pub fn merge(&mut self, other: &Self) {
        *self = self.with(other, |mine, theirs| mine + theirs);
    }

    fn with(&self, other: &Self, combined: impl Fn(u64, u64) -> u64) -> Self {
        let mut values = self.values();
        values.iter_mut().zip(other.values()).for_each(|(mine, theirs)| *mine = combined(*mine, theirs));
        let [reads, writes, others, serialization, deadlock, duplicate, ignored, reconnects] = values;
        let restarts = [serialization, deadlock, duplicate];
        Self { reads, writes, others, restarts, ignored, reconnects }
    }
}
