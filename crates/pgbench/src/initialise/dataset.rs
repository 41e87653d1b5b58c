//! Initialization steps as rounds of jobs for the loader.
//!
//! COPY freezes rows only if the same transaction created or truncated the table. An ordinary table, or a
//! partition, is therefore filled by one connection: as measured, one connection that freezes is faster than
//! two that do not, because those need a vacuum afterwards (docs/reference/engine-protocol.md). Partitions are
//! filled and indexed in parallel. Constant columns of accounts are column defaults during the copy.

use super::existing::{self, Accounts, Partition, Stored};
use super::partition::Bound;
use super::plan::{self, Part};
use super::rows::{self, Sent};
use super::specification::Initialise;
use super::tables::{self, IN_ACCOUNTS, IN_BRANCHES, IN_HISTORY, IN_TELLERS, NAMES};
use loader::dataset::{Dataset, Job, Round, Rows, Table, Work};
use loader::phase::Phase;
use loader::{LoadError, Replaceable, Stage};
use reactor::{Connection, Error};

/// Maximum number of connections: with more, sessions that fill partitions wait for each other in the server.
const CONNECTIONS_MAX: u32 = 64;
/// Number of chunks of the accounts if many connections fill one table.
const CHUNKS_MAX: u32 = 64;

/// pgbench's tables as a dataset.
pub struct PgbenchTables {
    initialise: Initialise,
    tables: Vec<Table>,
    rounds: Vec<((usize, char), Part)>,
    /// Whether the tables get pgdyno's ownership marker.
    marks: bool,
}

impl PgbenchTables {
    /// Plans tables exactly as `pgbench -i` creates them, without a marker. Nothing is executed yet.
    #[must_use]
    pub fn new(initialise: Initialise) -> Self {
        let (tables, rounds) = (tables::forecast(&initialise), plan::rounds(&initialise.steps_in_order()));
        Self { initialise, tables, rounds, marks: false }
    }

    /// Plans tables with pgdyno's ownership marker, so that a later load may replace them.
    #[must_use]
    pub fn marked(initialise: Initialise) -> Self {
        Self { marks: true, ..Self::new(initialise) }
    }

    fn accounts(&self) -> i64 {
        tables::rows(self.initialise.scale)[IN_ACCOUNTS] as i64
    }

    async fn jobs(&self, part: Part, control: &mut Connection) -> Result<Vec<Job>, LoadError> {
        Ok(match part {
            Part::Drop => vec![statement(IN_ACCOUNTS, "drop the old tables", tables::DROP)],
            Part::Create => {
                let create = if self.marks { tables::create_marked } else { tables::create };
                vec![statements(IN_ACCOUNTS, "create the tables", create(&self.initialise))]
            }
            Part::Empty => vec![statement(IN_ACCOUNTS, "empty the tables", tables::EMPTY)],
            Part::Fill(turn) => match self.look(control).await? {
                Some(found) => self.fill(turn, &found),
                None => Vec::new(),
            },
            Part::Generate => {
                vec![statements(IN_ACCOUNTS, "fill the tables", tables::generate(self.initialise.scale))]
            }
            Part::Vacuum => {
                let vacuum =
                    |table: usize| each(table, "vacuum", &format!("vacuum analyze {}", NAMES[table]));
                [IN_BRANCHES, IN_TELLERS, IN_ACCOUNTS, IN_HISTORY].map(vacuum).into()
            }
            Part::PartitionKeys => match self.look(control).await? {
                Some(Accounts { stored: Stored::Divided(partitions), .. }) => {
                    self.partition_keys(&partitions)
                }
                _ => Vec::new(),
            },
            Part::Keys => {
                let keys = [(IN_BRANCHES, "bid"), (IN_TELLERS, "tid"), (IN_ACCOUNTS, "aid")];
                let key = |(table, key): (usize, &str)| {
                    each(table, "index", &tables::primary_key(&self.initialise, NAMES[table], key))
                };
                keys.map(key).into()
            }
            Part::ForeignKeys => {
                let keys = tables::FOREIGN_KEYS.map(str::to_owned).into();
                vec![statements(IN_HISTORY, "create the foreign keys", keys)]
            }
        })
    }

    async fn look(&self, control: &mut Connection) -> Result<Option<Accounts>, LoadError> {
        let found = Accounts::look(control, self.accounts()).await;
        let found =
            found.map_err(|error| LoadError::from_io(Stage::Copy, "look at pgbench_accounts", &error))?;
        match &found {
            Some(accounts) if !accounts.big && i32::try_from(self.accounts()).is_err() => {
                let message = format!(
                    "pgbench_accounts.aid is an integer, too small for {} accounts; create the tables anew",
                    self.accounts()
                );
                Err(LoadError::new(Stage::Copy, message))
            }
            _ => Ok(found),
        }
    }

    /// The jobs of a turn of filling.
    ///
    /// Branches come last, so that their number shows that all other rows exist. With foreign keys they must come
    /// first.
    fn fill(&self, turn: usize, found: &Accounts) -> Vec<Job> {
        let branches = self.initialise.scale;
        let copy = |table: usize, rows: Box<dyn Rows>| copy(table, NAMES[table], !found.referred_to, rows);
        let of_branches = copy(IN_BRANCHES, Box::new(rows::Branches { branches }));
        let of_tellers = copy(IN_TELLERS, Box::new(rows::Tellers { branches }));
        let mut of_accounts = self.fill_accounts(found);
        let turns = if found.referred_to {
            [vec![of_branches], vec![of_tellers], of_accounts]
        } else {
            of_accounts.push(of_tellers);
            [of_accounts, vec![of_branches], Vec::new()]
        };
        turns.into_iter().nth(turn).unwrap_or_default()
    }

    fn fill_accounts(&self, found: &Accounts) -> Vec<Job> {
        let accounts = self.accounts();
        let sent = Sent { big: found.big, constants: !found.may_have_defaults };
        let copy = |into: &str, rows: Box<dyn Rows>| {
            if sent.constants { copy(IN_ACCOUNTS, into, true, rows) } else { copy_keys(into, rows) }
        };
        let of_partition = |partition: &Partition| {
            let rows: Box<dyn Rows> = match partition.bound {
                Bound::Range(from, to) => {
                    Box::new(rows::Accounts { first: from.max(1), last: accounts.min(to - 1), sent })
                }
                Bound::Hash(modulus, remainder) => {
                    Box::new(rows::HashedAccounts { accounts, sent, modulus, remainder })
                }
            };
            copy(&partition.name, rows)
        };
        match &found.stored {
            Stored::Whole if !found.referred_to => {
                let all = rows::Accounts { first: 1, last: accounts, sent };
                vec![copy(NAMES[IN_ACCOUNTS], Box::new(all))]
            }
            Stored::Divided(partitions) if !found.referred_to => {
                partitions.iter().map(of_partition).collect()
            }
            _ => self.fill_by_chunks(found.big),
        }
    }

    /// Jobs of complete branches, so that no two connections lock the same branch for a foreign key.
    fn fill_by_chunks(&self, big: bool) -> Vec<Job> {
        let branches = i64::from(self.initialise.scale.div_ceil(CHUNKS_MAX));
        let size = branches * i64::from(tables::ACCOUNTS);
        let firsts = (0..).map(|chunk| chunk * size + 1).take_while(|&first| first <= self.accounts());
        let chunk = |first: i64| {
            let sent = Sent { big, constants: true };
            let rows = rows::Accounts { first, last: self.accounts().min(first + size - 1), sent };
            copy(IN_ACCOUNTS, NAMES[IN_ACCOUNTS], false, Box::new(rows))
        };
        firsts.map(chunk).collect()
    }

    fn partition_keys(&self, partitions: &[Partition]) -> Vec<Job> {
        let without = partitions.iter().filter(|partition| !partition.has_key);
        let key = |partition: &Partition| {
            each(IN_ACCOUNTS, "index", &tables::primary_key(&self.initialise, &partition.name, "aid"))
        };
        without.map(key).collect()
    }
}

fn phase(part: Part) -> Phase {
    match part {
        Part::Drop | Part::Create => Phase::Create,
        Part::Empty | Part::Fill(_) | Part::Generate => Phase::Copy,
        Part::Vacuum => Phase::Vacuum,
        Part::PartitionKeys | Part::Keys | Part::ForeignKeys => Phase::Index,
    }
}

fn statement(table: usize, doing: &str, sql: &str) -> Job {
    statements(table, doing, vec![sql.to_owned()])
}

/// A job with statements for one connection.
fn statements(table: usize, doing: &str, sql: Vec<String>) -> Job {
    Job { table, doing: doing.to_owned(), work: Work::Statements(sql) }
}

fn each(table: usize, doing: &str, sql: &str) -> Job {
    statement(table, &format!("{doing} {}", NAMES[table]), sql)
}

fn copy(table: usize, into: &str, frozen: bool, rows: Box<dyn Rows>) -> Job {
    let (begin, freeze) =
        if frozen { (format!("BEGIN; TRUNCATE {into}"), ", FREEZE") } else { ("BEGIN".to_owned(), "") };
    let copy = format!("COPY {into} FROM STDIN (FORMAT binary{freeze})");
    let work = Work::Copy { begin, copy, rows, end: "COMMIT".to_owned() };
    Job { table, doing: format!("copy {into}"), work }
}

/// Copies the keys of accounts only. The other columns are constant: they are column defaults during the
/// transaction, so that the server need not read them row by row.
fn copy_keys(into: &str, rows: Box<dyn Rows>) -> Job {
    let begin = format!(
        "BEGIN; ALTER TABLE ONLY {into} ALTER abalance SET DEFAULT 0, ALTER filler SET DEFAULT ''; TRUNCATE {into}"
    );
    let copy = format!("COPY {into} (aid, bid) FROM STDIN (FORMAT binary, FREEZE)");
    let end =
        format!("ALTER TABLE ONLY {into} ALTER abalance DROP DEFAULT, ALTER filler DROP DEFAULT; COMMIT");
    Job { table: IN_ACCOUNTS, doing: format!("copy {into}"), work: Work::Copy { begin, copy, rows, end } }
}

impl Dataset for PgbenchTables {
    /// As in pgbench, the role's search path, the server's synchronous_commit and its maintenance_work_mem
    /// apply.
    ///
    /// With minimal WAL, COMMIT waits until all copied data is on disk, so most of it should be written back
    /// earlier. With other WAL levels that would only delay the load (docs/adr/0012).
    const SESSION: &'static str = "SELECT set_config(flush.name, '64', false) \
        FROM pg_catalog.pg_settings AS wal, pg_catalog.pg_settings AS flush \
        WHERE wal.name = 'wal_level' AND wal.setting = 'minimal' \
        AND flush.name = 'backend_flush_after' AND flush.max_val::int >= 64";
    const LEFT_BEHIND: &'static str = "its tables are left half filled";

    fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// As many as requested: the partitioning is not known yet.
    fn connections_max(&self) -> u32 {
        CONNECTIONS_MAX
    }

    async fn begin(&self, control: &mut Connection, existing: Replaceable) -> Result<(), LoadError> {
        existing::check_tables(control, existing).await
    }

    async fn round(&self, done: usize, control: &mut Connection) -> Result<Option<Round>, LoadError> {
        let Some(&(step, part)) = self.rounds.get(done) else { return Ok(None) };
        let rows = match part {
            Part::Empty => Some(vec![0; NAMES.len()]),
            Part::Generate => Some(tables::rows(self.initialise.scale).into()),
            _ => None,
        };
        let jobs = self.jobs(part, control).await?;
        Ok(Some(Round { phase: phase(part), step: Some(step), jobs, rows }))
    }

    /// Filling is all or nothing, as in pgbench. Later steps do not change the rows.
    async fn clean_up(&self, control: &mut Connection, phase: Phase, filled: &[usize]) -> Result<(), Error> {
        if phase == Phase::Copy && !filled.is_empty() {
            control.simple(tables::EMPTY).await?;
        }
        Ok(())
    }
}
