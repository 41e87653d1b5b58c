//! The workload as the driver sees it, and its clients.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::Value;

use super::dataset::{FORMAT, INDEXES, table_name};
use super::pace::{Pace, Queue};
use super::specification::{Query, Specification};
use super::tally::{BINS, Tally};
use super::values::{CASH_REGISTERS, Item, PRICES, PRODUCTS, timestamp};
use driver::{ClientId, Ending, Stream, User, Workload, WorkloadError};
use loader::replace::{MARK, comment_of};
use pgwire::backend::Message;
use pgwire::frontend;
use reactor::{Connection, Error, Nanos};

/// Rows that a query asks for.
const ROWS_OF_QUERY: u64 = 10;
/// Statements after which deletes read the lowest key again, and point queries the largest.
const LOWEST_EVERY: u64 = 1000;
const LARGEST_EVERY: u64 = 100;
/// Share of a domain at whose end a range query may find fewer rows than it asks for.
const END_PERCENT: u64 = 1;

const PREPARES: [&str; 4] = [
    include_str!("sql/prepare_market.sql"),
    include_str!("sql/prepare_register.sql"),
    include_str!("sql/prepare_pdc.sql"),
    include_str!("sql/prepare_point.sql"),
];
/// Names of the prepared range queries, and the number of values of their first columns.
const RANGES: [(&str, u64); 3] = [("market", PRODUCTS), ("register", CASH_REGISTERS), ("pdc", PRICES)];

/// The workload `insert`.
#[derive(Debug)]
pub struct InsertBenchmark {
    specification: Specification,
    queues: Vec<Arc<Queue>>,
}

impl InsertBenchmark {
    /// Reads the workload's part of a specification with so many clients.
    pub fn read(workload: &Value, clients: u32) -> Result<Self, WorkloadError> {
        let specification = Specification::deserialize(workload)?;
        if let Some(problem) = specification.problem(clients) {
            return Err(WorkloadError::value(problem));
        }
        let queues = (0..specification.tables).map(|_| Arc::default()).collect();
        Ok(Self { specification, queues })
    }
}

impl Workload for InsertBenchmark {
    type User = Client;
    type Tally = Tally;

    fn kinds(&self) -> Vec<&str> {
        let Specification { indexes, deletes, query, .. } = self.specification;
        let queries = query.map(|query| if query == Query::Range { "range" } else { "point" });
        let first = if indexes { "index" } else { "insert" };
        [Some(first), deletes.then_some("delete"), queries].into_iter().flatten().collect()
    }

    fn counters(&self) -> &'static [&'static str] {
        &["rows_inserted", "rows_deleted", "deletes_short", "rows_read", "ranges_short", "points_empty"]
    }

    fn has_due_times(&self) -> bool {
        true
    }

    fn user(&self, client_id: ClientId) -> Client {
        let Specification { tables, batch, indexes, deletes, query, rows_per_s, done } =
            self.specification.clone();
        let each = client_id.clients / tables;
        let table = client_id.client / each;
        let interval = rows_per_s.map(|rate| Nanos::from_s(f64::from(batch) / rate));
        let role = match client_id.client % each {
            0 if indexes => Role::Index,
            0 => Role::Insert,
            1 if deletes => Role::Delete,
            2 => query.map_or(Role::Idle, Role::Query),
            _ => Role::Idle,
        };
        let mut stream = Stream::new(client_id.seed);
        let place = stream.unit() % 1.0;
        Client {
            role,
            kind: match role {
                Role::Insert | Role::Index | Role::Idle => 0,
                Role::Delete => 1,
                Role::Query(_) => 1 + usize::from(deletes),
            },
            name: table_name(table),
            done,
            queue: Arc::clone(&self.queues[table as usize]),
            batch: u64::from(batch),
            pace: Pace::new(interval, place, deletes, role == Role::Delete),
            stream,
            statements: 0,
            index: 0,
            start: 0,
            sql: Vec::new(),
            time_s: 0,
            time: timestamp(0),
            effects: Effects::default(),
        }
    }
}

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Insert,
    /// Creates the next secondary index, and drops that of the last time before.
    Index,
    Delete,
    Query(Query),
    Idle,
}

/// What an operation did, in the order of the counters.
#[derive(Clone, Copy, Debug, Default)]
struct Effects {
    rows_inserted: u64,
    rows_deleted: u64,
    deletes_short: u64,
    rows_read: u64,
    ranges_short: u64,
    points_empty: u64,
}

/// A client of a table.
pub struct Client {
    role: Role,
    /// Index of the kind of its operations.
    kind: usize,
    /// Of its table.
    name: String,
    /// The last step that the comment of the data must have; any without it.
    done: Option<String>,
    queue: Arc<Queue>,
    /// Rows of a commit.
    batch: u64,
    pace: Pace,
    stream: Stream,
    /// Number of drawn statements.
    statements: u64,
    /// Of a range query: its index, and where it starts.
    index: usize,
    start: u64,
    /// The next statement.
    sql: Vec<u8>,
    /// The present second, and its text.
    time_s: i64,
    time: [u8; 19],
    effects: Effects,
}

/// Whether the data with this comment are complete, of this format, and those after the step `wanted`.
fn check(comment: &str, wanted: Option<&str>) -> Result<(), Error> {
    if !comment.strip_prefix(MARK).is_some_and(|rest| rest.starts_with(": insert ")) {
        return Error::unusable(
            "the database holds no complete data of the workload insert; load them first",
        );
    }
    if !comment.ends_with(&format!("format={}", *FORMAT)) {
        return Error::unusable(
            "the data of the workload insert are of another version of pgdyno; load them again",
        );
    }
    let done = comment.split(' ').find_map(|word| word.strip_prefix("done=")).unwrap_or_default();
    match wanted {
        Some(wanted) if wanted != done => {
            let why = format!("the phase begins after {wanted}, and the last step of the data is {done}");
            Error::unusable(format!("{why}; load those of the phase"))
        }
        _ => Ok(()),
    }
}

/// Sends a statement, and returns its number of rows, which are skipped.
#[inline]
async fn execute(connection: &mut Connection, sql: &[u8]) -> Result<u64, Error> {
    frontend::query_in_place(connection.out(), |out| out.extend_from_slice(sql))?;
    connection.flush().await?;
    let mut rows = 0;
    loop {
        match connection.next_unless(|tag| matches!(tag, b'T' | b'D')).await? {
            Message::CommandComplete(tag) => rows = tag.rows(),
            Message::ReadyForQuery(_) => return Ok(rows),
            _ => {}
        }
    }
}

/// The only number of a query; 0 if it is NULL.
async fn number(connection: &mut Connection, sql: &str) -> Result<i64, Error> {
    let rows = connection.simple(sql).await?;
    Ok(rows.into_iter().flatten().flatten().next().and_then(|text| text.parse().ok()).unwrap_or(0))
}

impl Client {
    /// Writes the next INSERT. Its time is the present second.
    fn draw_insert(&mut self) {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
        if now_s != self.time_s {
            (self.time_s, self.time) = (now_s, timestamp(now_s));
        }
        self.sql.clear();
        let columns = "dateandtime,cashregisterid,customerid,productid,price,data";
        // Writing to a vector cannot fail, here and below.
        let _ = write!(self.sql, "INSERT INTO {} ({columns}) VALUES ", self.name);
        for row in 0..self.batch {
            if row > 0 {
                self.sql.push(b',');
            }
            Item::draw(&mut self.stream).append(&self.time, &mut self.sql);
        }
    }

    fn draw_range(&mut self, tally: &mut Tally) {
        self.index = self.stream.below(RANGES.len() as u64) as usize;
        let (name, values) = RANGES[self.index];
        self.start = self.stream.below(values);
        tally.starts[self.index].count(self.start, values, 0);
        self.sql.clear();
        let _ = write!(self.sql, "EXECUTE {name} ({})", self.start);
    }

    fn draw_point(&mut self, tally: &mut Tally) {
        let lowest = self.queue.lowest.load(Relaxed);
        let keys = (self.queue.largest.load(Relaxed) - lowest + 1).max(1) as u64;
        self.sql.clear();
        self.sql.extend_from_slice(b"EXECUTE point ");
        for place in 0..ROWS_OF_QUERY {
            let (key, part) = (self.stream.below(keys), self.stream.below(BINS));
            tally.keys.count(key, keys, part);
            self.sql.push(if place == 0 { b'(' } else { b',' });
            frontend::write_int(&mut self.sql, lowest + key as i64);
        }
        self.sql.push(b')');
    }

    async fn read_lowest(&self, connection: &mut Connection) -> Result<(), Error> {
        let lowest = number(connection, &format!("SELECT min(transactionid) FROM {}", self.name)).await?;
        self.queue.lowest.fetch_max(lowest, Relaxed);
        Ok(())
    }

    async fn read_largest(&self, connection: &mut Connection) -> Result<(), Error> {
        let largest = number(connection, &format!("SELECT max(transactionid) FROM {}", self.name)).await?;
        self.queue.largest.fetch_max(largest, Relaxed);
        Ok(())
    }

    async fn create_index(&self, connection: &mut Connection) -> Result<(), Error> {
        let (end, sql) = INDEXES[((self.statements - 1) % INDEXES.len() as u64) as usize];
        connection.simple(&format!("DROP INDEX IF EXISTS {}_{end}", self.name)).await?;
        connection.simple(&sql.replace("{table}", &self.name)).await.map(drop)
    }

    async fn delete(&mut self, connection: &mut Connection) -> Result<(), Error> {
        if self.statements % LOWEST_EVERY == 0 {
            self.read_lowest(connection).await?;
        }
        let (name, batch, lowest) = (&self.name, self.batch, self.queue.lowest.load(Relaxed));
        self.sql.clear();
        let _ = write!(
            self.sql,
            "DELETE FROM {name} WHERE transactionid IN (SELECT transactionid FROM {name} \
             WHERE transactionid >= {lowest} ORDER BY transactionid LIMIT {batch})",
        );
        let rows = execute(connection, &self.sql).await?;
        self.queue.lowest.fetch_add(rows as i64, Relaxed);
        self.effects.rows_deleted = rows;
        self.effects.deletes_short = u64::from(rows != batch);
        Ok(())
    }
}

impl User for Client {
    type Tally = Tally;

    async fn prepare(&mut self, connection: &mut Connection) -> Result<(), Error> {
        check(&comment_of(connection, "pi1").await?, self.done.as_deref())?;
        if matches!(self.role, Role::Delete | Role::Query(_)) {
            self.read_lowest(connection).await?;
        }
        if let Role::Query(_) = self.role {
            self.read_largest(connection).await?;
            for sql in PREPARES {
                connection.simple(&sql.replace("{table}", &self.name)).await?;
            }
        }
        Ok(())
    }

    #[inline]
    fn draw(&mut self, tally: &mut Tally) -> usize {
        self.effects = Effects::default();
        self.statements += 1;
        self.pace.advance();
        match self.role {
            Role::Insert => self.draw_insert(),
            Role::Query(Query::Range) => self.draw_range(tally),
            Role::Query(Query::Point) => self.draw_point(tally),
            // The key from which rows are deleted is known when it is sent.
            Role::Delete | Role::Index | Role::Idle => {}
        }
        self.kind
    }

    #[inline]
    async fn attempt(&mut self, connection: &mut Connection) -> Result<Ending, Error> {
        match self.role {
            Role::Insert => self.effects.rows_inserted = execute(connection, &self.sql).await?,
            Role::Index => Box::pin(self.create_index(connection)).await?,
            Role::Delete => Box::pin(self.delete(connection)).await?,
            Role::Query(Query::Range) => {
                let rows = execute(connection, &self.sql).await?;
                let values = RANGES[self.index].1;
                let is_inner = self.start < values - values * END_PERCENT / 100;
                self.effects.rows_read = rows;
                self.effects.ranges_short = u64::from(is_inner && rows < ROWS_OF_QUERY);
            }
            Role::Query(Query::Point) => {
                if self.statements % LARGEST_EVERY == 0 {
                    self.read_largest(connection).await?;
                }
                self.effects.rows_read = execute(connection, &self.sql).await?;
                self.effects.points_empty = u64::from(self.effects.rows_read == 0);
            }
            Role::Idle => {}
        }
        Ok(Ending::Committed)
    }

    fn add_to_counters(&self, is_committed: bool, counters: &mut [u64]) {
        match self.role {
            Role::Insert => drop(self.queue.inserts.fetch_add(1, Relaxed)),
            Role::Delete => drop(self.queue.deletes.fetch_add(1, Relaxed)),
            Role::Query(_) | Role::Index | Role::Idle => {}
        }
        if is_committed {
            let of = &self.effects;
            let done = [
                of.rows_inserted,
                of.rows_deleted,
                of.deletes_short,
                of.rows_read,
                of.ranges_short,
                of.points_empty,
            ];
            counters.iter_mut().zip(done).for_each(|(counter, done)| *counter += done);
        }
    }

    #[inline]
    fn due(&mut self, slice: (Nanos, Nanos), now: Nanos) -> Nanos {
        match self.role {
            Role::Insert | Role::Delete => self.pace.due(&self.queue, slice, now),
            Role::Query(_) | Role::Index => now,
            Role::Idle => Nanos::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes).into_owned()
    }

    fn client(given: &Value, client: u32, clients: u32) -> Client {
        let workload = InsertBenchmark::read(given, clients).expect("sound");
        workload.user(ClientId { client, clients, thread: 0, seed: 9 })
    }

    #[test]
    fn clients_have_the_roles_of_their_phase() {
        let roles = |given: &Value, clients: u32| -> Vec<(String, Role)> {
            (0..clients).map(|one| client(given, one, clients)).map(|one| (one.name, one.role)).collect()
        };
        let pi1 = |role| ("pi1".to_owned(), role);
        let load = json!({"tables": 1, "batch": 100});
        assert_eq!(roles(&load, 3), [Role::Insert, Role::Idle, Role::Idle].map(pi1));
        let indexes = json!({"tables": 1, "batch": 1, "indexes": true});
        assert_eq!(roles(&indexes, 3), [Role::Index, Role::Idle, Role::Idle].map(pi1));
        let writes = json!({"tables": 1, "batch": 5, "deletes": true});
        assert_eq!(roles(&writes, 2), [Role::Insert, Role::Delete].map(pi1));
        let queries = json!({"tables": 2, "batch": 50, "deletes": true, "query": "range", "rows_per_s": 100});
        let found = roles(&queries, 6);
        assert_eq!(found[..3], [Role::Insert, Role::Delete, Role::Query(Query::Range)].map(pi1));
        assert_eq!(found[5], ("pi2".to_owned(), Role::Query(Query::Range)));
    }

    #[test]
    fn a_rate_of_rows_is_an_interval_of_statements() {
        let given = json!({"tables": 1, "batch": 50, "deletes": true, "query": "range", "rows_per_s": 100});
        assert_eq!(client(&given, 1, 3).pace.interval, Some(Nanos(500_000_000)));
        let slice = (Nanos(7), Nanos(1_000_000_007));
        let mut inserts = client(&given, 0, 3);
        inserts.draw(&mut Tally::default());
        let first = inserts.due(slice, Nanos(7));
        assert!((7..500_000_007).contains(&first.0), "{first:?}");
        inserts.draw(&mut Tally::default());
        let second = inserts.due(slice, Nanos(7));
        assert!((500_000_007..1_000_000_007).contains(&second.0), "{second:?}");
        assert_eq!(client(&given, 2, 3).due(slice, Nanos(99)), Nanos(99));
        assert_eq!(client(&json!({"tables": 1, "batch": 5}), 1, 2).due(slice, Nanos(99)), Nanos::MAX);
    }

    #[test]
    fn an_insert_has_the_rows_of_a_commit_and_the_same_seed_draws_the_same() {
        let given = json!({"tables": 1, "batch": 5});
        let drawn = |statements: u32| {
            let mut one = client(&given, 0, 1);
            for _ in 0..statements {
                one.draw(&mut Tally::default());
            }
            text(&one.sql).replace(&text(&one.time), "now")
        };
        assert_eq!(drawn(1).matches("),('now',").count(), 4);
        assert_eq!(drawn(3), drawn(3));
        assert_ne!(drawn(1), drawn(2));
    }

    #[test]
    fn keys_of_a_point_query_are_between_the_lowest_and_the_largest() {
        let given = json!({"tables": 1, "batch": 50, "deletes": true, "query": "point", "rows_per_s": 100});
        let (mut one, mut tally) = (client(&given, 2, 3), Tally::default());
        one.queue.lowest.store(101, Relaxed);
        one.queue.largest.store(200, Relaxed);
        let mut seen = [0; 100];
        for _ in 0..1000 {
            assert_eq!(one.draw(&mut tally), 2);
            let sql = text(&one.sql);
            let keys = sql.trim_start_matches("EXECUTE point (").trim_end_matches(')');
            let keys: Vec<usize> = keys.split(',').map(|key| key.parse().expect("a number")).collect();
            assert_eq!(keys.len(), 10);
            for key in keys {
                seen[key - 101] += 1;
            }
        }
        // Each is binomial with mean 100 and standard deviation 10.
        assert!(seen.iter().all(|n| (50..150).contains(n)), "{seen:?}");
    }

    #[test]
    fn the_comment_of_data_tells_whether_they_fit() {
        let comment = format!("{MARK}: insert queues=1 rows=5 done=l.x format={}", *FORMAT);
        assert!(check(&comment, None).is_ok());
        assert!(check(&comment, Some("l.x")).is_ok());
        for (comment, why) in [
            ("", "load them first"),
            (MARK, "load them first"),
            ("made by pgdyno: insert queues=1 rows=5 done=l.x format=0", "another version"),
            (comment.as_str(), "begins after l.i2, and the last step of the data is l.x"),
        ] {
            let error = check(comment, Some("l.i2")).expect_err("does not fit").to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
