//! Names, columns and statements of the tables. Statements are identical to those of PostgreSQL 18's pgbench,
//! which prints failed ones.

use std::sync::LazyLock;

use super::specification::{Initialise, Method};
use loader::dataset::Table;
use loader::format::format_of;

/// Tellers per branch.
pub const TELLERS: u32 = 10;
/// Accounts per branch.
pub const ACCOUNTS: u32 = 100_000;
/// Minimum scale at which the key of accounts is a `bigint`.
const BIG_SCALE: u32 = 20_000;

/// Index of the table in [`NAMES`] and in the loader's counters.
pub const IN_ACCOUNTS: usize = 0;
/// See [`IN_ACCOUNTS`].
pub const IN_TELLERS: usize = 1;
/// See [`IN_ACCOUNTS`].
pub const IN_BRANCHES: usize = 2;
/// See [`IN_ACCOUNTS`].
pub const IN_HISTORY: usize = 3;
/// Tables, the most expensive first.
pub const NAMES: [&str; 4] = ["pgbench_accounts", "pgbench_tellers", "pgbench_branches", "pgbench_history"];

/// Comment on tables loaded by pgdyno: its ownership marker. Tables without it belong to others.
pub const MARK: &str = "made by pgdyno";

/// Drops all tables in one statement, regardless of foreign keys between them.
pub const DROP: &str =
    "drop table if exists pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers";
/// See [`DROP`].
pub const EMPTY: &str = "truncate table pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers";
/// Statements in order of their references. They lock each other's tables, so they run one after the other.
pub const FOREIGN_KEYS: [&str; 5] = [
    "alter table pgbench_tellers add constraint pgbench_tellers_bid_fkey \
     foreign key (bid) references pgbench_branches",
    "alter table pgbench_accounts add constraint pgbench_accounts_bid_fkey \
     foreign key (bid) references pgbench_branches",
    "alter table pgbench_history add constraint pgbench_history_bid_fkey \
     foreign key (bid) references pgbench_branches",
    "alter table pgbench_history add constraint pgbench_history_tid_fkey \
     foreign key (tid) references pgbench_tellers",
    "alter table pgbench_history add constraint pgbench_history_aid_fkey \
     foreign key (aid) references pgbench_accounts",
];

/// Version of the rows. Increment it when they change.
const POPULATION: &str = "1";
/// Dataset format of pgbench's tables: a digest of their statements and of `POPULATION`.
pub static FORMAT: LazyLock<String> = LazyLock::new(|| {
    let of = |method: Option<Method>| Initialise {
        partitions: if method.is_some() { 2 } else { 0 },
        partition_method: method,
        ..Initialise::of_scale(1)
    };
    let plain = of(None);
    let keys = [(IN_ACCOUNTS, "aid"), (IN_TELLERS, "tid"), (IN_BRANCHES, "bid")]
        .map(|(table, key)| primary_key(&plain, NAMES[table], key));
    let made: Vec<String> = [None, Some(Method::Range), Some(Method::Hash)]
        .into_iter()
        .flat_map(|method| create(&of(method)))
        .chain(keys)
        .collect();
    let steps = [POPULATION, plain.steps.as_str()];
    format_of(steps.into_iter().chain(made.iter().map(String::as_str)).chain(FOREIGN_KEYS))
});

/// Columns of a table of [`NAMES`]; `{aid}` is the type of the accounts' key.
fn columns(table: usize) -> &'static str {
    match table {
        IN_ACCOUNTS => "aid {aid} not null,bid int,abalance int,filler char(84)",
        IN_TELLERS => "tid int not null,bid int,tbalance int,filler char(84)",
        IN_BRANCHES => "bid int not null,bbalance int,filler char(88)",
        _ => "tid int,bid int,aid {aid},delta int,mtime timestamp,filler char(22)",
    }
}

/// Whether a table's columns, as listed in the catalog, are pgbench's at any scale.
pub fn are_pgbench_columns(table: &str, columns: &str) -> bool {
    let Some(table) = NAMES.iter().position(|name| *name == table) else { return false };
    let declared =
        self::columns(table).replace(" not null", "").replace(',', ", ").replace(" int", " integer");
    let expected =
        declared.replace("char(", "character(").replace("timestamp", "timestamp without time zone");
    ["integer", "bigint"].iter().any(|aid| expected.replace("{aid}", aid) == columns)
}

/// Number of rows of each table after generation.
pub fn rows(scale: u32) -> [u64; 4] {
    let scale = u64::from(scale);
    [scale * u64::from(ACCOUNTS), scale * u64::from(TELLERS), scale, 0]
}

/// The expected size of each table.
pub fn forecast(of: &Initialise) -> Vec<Table> {
    let generated = of.steps.contains(['g', 'G']);
    let rows = if generated { rows(of.scale) } else { [0; 4] };
    let table = |(table, &name): (usize, &&'static str)| Table {
        name: name.into(),
        rows: rows[table],
        bytes_estimated: bytes_estimated(table, rows[table], of.fillfactor),
    };
    NAMES.iter().enumerate().map(table).collect()
}

/// Bytes on disk of a table and its primary key: tuples of these sizes with line pointers at this fill factor,
/// 22.5 bytes per index entry, and fixed pages and maps.
fn bytes_estimated(table: usize, rows: u64, fillfactor: u32) -> u64 {
    const PAGE_BYTES: u64 = 8192;
    const SMALL_TABLE_BYTES: u64 = 80 << 10;
    let row_bytes: u64 = if table == IN_ACCOUNTS { 132 } else { 44 };
    let room = PAGE_BYTES - 24 - PAGE_BYTES * u64::from(100 - fillfactor) / 100;
    let pages = rows.div_ceil((room / row_bytes).max(1));
    pages * PAGE_BYTES + rows * 45 / 2 + SMALL_TABLE_BYTES
}

/// Order in which the tables are created, as in pgbench.
const CREATED: [usize; 4] = [IN_HISTORY, IN_TELLERS, IN_ACCOUNTS, IN_BRANCHES];

/// The statements that create the tables, then the partitions.
pub fn create(of: &Initialise) -> Vec<String> {
    CREATED.map(|table| create_table(of, table)).into_iter().chain(create_partitions(of)).collect()
}

/// Statements with the ownership marker.
///
/// A table and its marker are created in one message, therefore in one transaction, so that no table is visible
/// without it.
pub fn create_marked(of: &Initialise) -> Vec<String> {
    let marked =
        |table: usize| format!("{}; comment on table {} is '{MARK}'", create_table(of, table), NAMES[table]);
    CREATED.map(marked).into_iter().chain(create_partitions(of)).collect()
}

fn create_partitions(of: &Initialise) -> impl Iterator<Item = String> {
    (1..=of.partitions).filter_map(|number| create_partition(of, number))
}

fn create_table(of: &Initialise, table: usize) -> String {
    let method = of.method();
    // As in pgbench since version 18, only the partitions of a partitioned table are unlogged.
    let unlogged = if of.unlogged && method.is_none() { " unlogged" } else { "" };
    // pgbench aligns them.
    let aid = if of.scale >= BIG_SCALE { "bigint" } else { "   int" };
    let columns = columns(table).replace("{aid}", aid);
    let stored = match (table, method) {
        (IN_ACCOUNTS, Some(Method::Range)) => " partition by range (aid)".to_owned(),
        (IN_ACCOUNTS, Some(Method::Hash)) => " partition by hash (aid)".to_owned(),
        (IN_HISTORY, _) => String::new(),
        _ => format!(" with (fillfactor={})", of.fillfactor),
    };
    let place = of.tablespace.as_deref().map(|name| format!(" tablespace {}", quoted(name)));
    format!("create{unlogged} table {}({columns}){stored}{}", NAMES[table], place.unwrap_or_default())
}

fn create_partition(of: &Initialise, number: u32) -> Option<String> {
    let unlogged = if of.unlogged { " unlogged" } else { "" };
    let bound = match of.method()? {
        Method::Range => {
            let size = rows(of.scale)[IN_ACCOUNTS].div_ceil(u64::from(of.partitions));
            let end = |at: u32| (u64::from(at) * size + 1).to_string();
            let from = if number == 1 { "minvalue".to_owned() } else { end(number - 1) };
            let to = if number == of.partitions { "maxvalue".to_owned() } else { end(number) };
            format!("from ({from}) to ({to})")
        }
        Method::Hash => format!("with (modulus {}, remainder {})", of.partitions, number - 1),
    };
    Some(format!(
        "create{unlogged} table pgbench_accounts_{number}\n  partition of pgbench_accounts\n  \
         for values {bound} with (fillfactor={})",
        of.fillfactor
    ))
}

/// The statement that creates a primary key.
pub fn primary_key(of: &Initialise, table: &str, key: &str) -> String {
    let place =
        of.index_tablespace.as_deref().map(|name| format!(" using index tablespace {}", quoted(name)));
    format!("alter table {table} add primary key ({key}){}", place.unwrap_or_default())
}

/// Statements that generate the data in the server, in one transaction.
pub fn generate(scale: u32) -> Vec<String> {
    let [accounts, tellers, branches, _] = rows(scale);
    vec![
        "begin".to_owned(),
        EMPTY.to_owned(),
        format!(
            "insert into pgbench_branches(bid,bbalance) \
             select bid, 0 from generate_series(1, {branches}) as bid"
        ),
        format!(
            "insert into pgbench_tellers(tid,bid,tbalance) \
             select tid, (tid - 1) / {TELLERS} + 1, 0 from generate_series(1, {tellers}) as tid"
        ),
        format!(
            "insert into pgbench_accounts(aid,bid,abalance,filler) \
             select aid, (aid - 1) / {ACCOUNTS} + 1, 0, '' from generate_series(1, {accounts}) as aid"
        ),
        "commit".to_owned(),
    ]
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
