//! The workload as the driver sees it, and its clients.

use std::collections::{HashSet, VecDeque};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::Value;

use super::dataset::{FORMAT, NODE_TYPE, VISIBLE};
use super::graph::FIRST_LINK_TYPE;
use super::operation::{Draws, Kind, NAMES, Operation};
use super::specification::{Distributions, Shape};
use super::tally::Tally;
use driver::{ClientId, Ending, Stream, User, Workload, WorkloadError};
use loader::replace::{MARK, comment_of};
use pgwire::SqlState;
use pgwire::backend::{Message, ProtocolError, Row};
use pgwire::frontend::{self, Parameter};
use reactor::{Connection, Error};

/// Most links of a list.
const LIST_MAX: i64 = 10_000;
/// Most lists that a client remembers to continue them.
const HISTORIES_MAX: usize = 2048;
/// Changes between insert and update of one link. More than two need other clients that delete rows, and none does.
const CHANGES_MAX: u32 = 10;

macro_rules! statements {
    ($($statement:ident = $name:literal, $sql:expr;)+) => {
        /// A prepared statement.
        #[derive(Clone, Copy, Debug)]
        enum Statement { $($statement),+ }

        /// Their names on the wire and texts.
        const STATEMENTS: &[(&str, &str)] = &[$(($name, $sql)),+];
    };
}

statements! {
    Begin = "a", "BEGIN";
    Commit = "b", "COMMIT";
    Rollback = "c", "ROLLBACK";
    InsertLink = "d", include_str!("sql/insert_link.sql");
    InsertCount = "e", include_str!("sql/insert_count.sql");
    LockLink = "f", include_str!("sql/lock_link.sql");
    UpdateLink = "g", include_str!("sql/update_link.sql");
    HideLink = "h", include_str!("sql/hide_link.sql");
    ChangeCount = "i", include_str!("sql/change_count.sql");
    CountLink = "j", include_str!("sql/count_link.sql");
    ListLinks = "k", include_str!("sql/list_links.sql");
    GetNode = "l", include_str!("sql/get_node.sql");
    InsertNode = "m", include_str!("sql/insert_node.sql");
    UpdateNode = "n", include_str!("sql/update_node.sql");
    DeleteNode = "o", include_str!("sql/delete_node.sql");
}

/// The workload `linkbench`.
#[derive(Clone, Copy, Debug)]
pub struct LinkBench {
    shape: Shape,
}

impl LinkBench {
    /// Reads the workload's part of a specification.
    pub fn read(workload: &Value) -> Result<Self, WorkloadError> {
        Ok(Self { shape: Shape::deserialize(workload)? })
    }
}

impl Workload for LinkBench {
    type User = Requester;
    type Tally = Tally;

    fn kinds(&self) -> Vec<&str> {
        NAMES.to_vec()
    }

    fn counters(&self) -> &'static [&'static str] {
        &[
            "links_added",
            "links_shown",
            "links_hidden",
            "nodes_added",
            "nodes_deleted",
            "duplicate_keys",
            "links_listed",
        ]
    }

    fn user(&self, client_id: ClientId) -> Requester {
        Requester {
            shape: self.shape,
            draws: None,
            stream: Stream::new(client_id.seed),
            operation: Operation::default(),
            effects: Effects::default(),
            histories: VecDeque::new(),
            blocked: HashSet::new(),
            sql: String::new(),
        }
    }
}

/// What an operation did, in the order of the counters.
#[derive(Clone, Copy, Debug, Default)]
struct Effects {
    links_added: u64,
    links_shown: u64,
    links_hidden: u64,
    nodes_added: u64,
    nodes_deleted: u64,
    /// Inserts that found their link. They remain after a rollback.
    duplicate_keys: u64,
    links_listed: u64,
}

impl Effects {
    /// By counter.
    fn values(self) -> [u64; 7] {
        let Self { links_added, links_shown, links_hidden, nodes_added, nodes_deleted, .. } = self;
        let Self { duplicate_keys, links_listed, .. } = self;
        [links_added, links_shown, links_hidden, nodes_added, nodes_deleted, duplicate_keys, links_listed]
    }

    /// What remains after a rollback.
    fn of_rollback(self) -> Self {
        Self { duplicate_keys: self.duplicate_keys, ..Self::default() }
    }
}

/// A list of the highest length, which has older links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct History {
    id1: u64,
    link_type: u64,
    /// The time of its oldest link.
    time_ms: i64,
}

impl History {
    fn key(&self) -> (u64, u64) {
        (self.id1, self.link_type)
    }
}

/// A client.
pub struct Requester {
    shape: Shape,
    /// Absent until the database has told the number of nodes.
    draws: Option<Draws>,
    stream: Stream,
    operation: Operation,
    effects: Effects,
    histories: VecDeque<History>,
    /// Nodes and types of lists that are not remembered again.
    blocked: HashSet<(u64, u64)>,
    sql: String,
}

/// The number of nodes in the comment of complete data of this shape and format.
fn nodes_in(comment: &str, shape: Shape) -> Result<u64, Error> {
    let told = comment.strip_prefix(MARK).and_then(|text| text.strip_prefix(": linkbench nodes="));
    let Some((nodes, rest)) = told.and_then(|text| text.split_once(' ')) else {
        return Error::unusable("the database holds no complete LinkBench data of pgdyno; load them first");
    };
    if !rest.ends_with(&format!("format={}", *FORMAT)) {
        return Error::unusable("the LinkBench data are of another version of pgdyno; load them again");
    }
    if !rest.starts_with(shape.text()) {
        let given = shape.text();
        return Error::unusable(format!("the LinkBench data have other parameters than {given}: {rest}"));
    }
    nodes.parse().or_else(|_| Error::unusable("the comment of linktable is damaged; load the data again"))
}

fn since_epoch_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

/// A smallint or bigint of a row.
fn number(row: Row<'_>, column: usize) -> Result<i64, ProtocolError> {
    let found = match row.get(column)? {
        Some(&[a, b]) => Some(i64::from(i16::from_be_bytes([a, b]))),
        Some(bytes) => bytes.try_into().ok().map(i64::from_be_bytes),
        None => None,
    };
    found.ok_or(ProtocolError::ColumnType { column, expected: "smallint or bigint" })
}

fn append(
    connection: &mut Connection,
    statement: Statement,
    parameters: &[&dyn Parameter],
) -> Result<(), Error> {
    let out = connection.out();
    frontend::bind(out, STATEMENTS[statement as usize].0, parameters)?;
    frontend::execute(out);
    Ok(())
}

/// Sends what is in the buffer, and returns the number of rows of the last statement. `read` gets the row `nth`,
/// from 1. All others are skipped.
#[inline]
async fn exchange(
    connection: &mut Connection,
    nth: u64,
    mut read: impl FnMut(Row<'_>) -> Result<(), ProtocolError>,
) -> Result<u64, Error> {
    frontend::sync(connection.out());
    connection.flush().await?;
    let (mut rows, mut seen) = (0, 0);
    let mut skips = |tag| {
        seen += u64::from(tag == b'D');
        tag == b'D' && seen != nth
    };
    loop {
        match connection.next_unless(&mut skips).await? {
            Message::DataRow(row) => read(row)?,
            Message::CommandComplete(tag) => rows = tag.rows(),
            Message::ReadyForQuery(_) => return Ok(rows),
            _ => {}
        }
    }
}

async fn execute(
    connection: &mut Connection,
    statement: Statement,
    parameters: &[&dyn Parameter],
) -> Result<u64, Error> {
    append(connection, statement, parameters)?;
    exchange(connection, 0, |_| Ok(())).await
}

/// Like [`execute`], for a statement that must change one row.
async fn change(
    connection: &mut Connection,
    statement: Statement,
    parameters: &[&dyn Parameter],
) -> Result<(), Error> {
    match execute(connection, statement, parameters).await? {
        1 => Ok(()),
        rows => Error::unusable(format!("{statement:?} changed {rows} rows, not 1; load the data again")),
    }
}

/// The key of a link.
#[derive(Clone, Copy)]
struct Key {
    id1: i64,
    id2: i64,
    link_type: i64,
}

impl Requester {
    fn link_type(&self) -> i64 {
        FIRST_LINK_TYPE + self.operation.link_type as i64
    }

    fn key(&self) -> Key {
        let id2 = self.operation.id2s.first().copied().unwrap_or_default() as i64;
        Key { id1: self.operation.id1 as i64, id2, link_type: self.link_type() }
    }

    /// Inserts a link or updates it, whichever comes first.
    async fn write_link(&mut self, connection: &mut Connection, mut inserts: bool) -> Result<(), Error> {
        for _ in 0..CHANGES_MAX {
            let is_done =
                if inserts { self.insert(connection).await? } else { self.update(connection).await? };
            if is_done {
                return Ok(());
            }
            inserts = !inserts;
        }
        Error::unusable("a link was deleted and inserted by others again and again")
    }

    /// Inserts a link and counts it. Returns `false` after a rollback if it exists.
    async fn insert(&mut self, connection: &mut Connection) -> Result<bool, Error> {
        let (Key { id1, id2, link_type }, now_ms) = (self.key(), since_epoch_ms());
        append(connection, Statement::Begin, &[])?;
        let data = &self.operation.data[..];
        let inserted = change(
            connection,
            Statement::InsertLink,
            &[&id1, &id2, &link_type, &VISIBLE, &data, &0_i32, &now_ms],
        )
        .await;
        if let Err(error) = inserted {
            if error.sqlstate() != Some(SqlState::UNIQUE_VIOLATION) {
                return Err(error);
            }
            self.effects.duplicate_keys += 1;
            connection.recover().await?;
            return Ok(false);
        }
        change(connection, Statement::InsertCount, &[&id1, &link_type, &1_i64, &now_ms]).await?;
        execute(connection, Statement::Commit, &[]).await?;
        self.effects.links_added = 1;
        Ok(true)
    }

    /// Locks a link. Returns its visibility, `None` if there is none.
    async fn lock(
        connection: &mut Connection,
        Key { id1, id2, link_type }: Key,
    ) -> Result<Option<i64>, Error> {
        let mut visibility = None;
        append(connection, Statement::Begin, &[])?;
        append(connection, Statement::LockLink, &[&id1, &id2, &link_type])?;
        exchange(connection, 1, |row| {
            visibility = Some(number(row, 0)?);
            Ok(())
        })
        .await?;
        Ok(visibility)
    }

    /// Updates a link and makes it visible. Returns `false` after a rollback if it does not exist.
    async fn update(&mut self, connection: &mut Connection) -> Result<bool, Error> {
        let key = self.key();
        let Some(visibility) = Self::lock(connection, key).await? else {
            execute(connection, Statement::Rollback, &[]).await?;
            return Ok(false);
        };
        let (Key { id1, id2, link_type }, now_ms) = (key, since_epoch_ms());
        let data = &self.operation.data[..];
        change(
            connection,
            Statement::UpdateLink,
            &[&VISIBLE, &data, &0_i32, &now_ms, &id1, &id2, &link_type],
        )
        .await?;
        let is_shown = visibility != i64::from(VISIBLE);
        if is_shown {
            change(connection, Statement::ChangeCount, &[&1_i64, &now_ms, &id1, &link_type]).await?;
        }
        execute(connection, Statement::Commit, &[]).await?;
        self.effects.links_shown = u64::from(is_shown);
        Ok(true)
    }

    /// Hides a visible link.
    async fn delete_link(&mut self, connection: &mut Connection) -> Result<(), Error> {
        let key = self.key();
        if Self::lock(connection, key).await? != Some(i64::from(VISIBLE)) {
            execute(connection, Statement::Rollback, &[]).await?;
            return Ok(());
        }
        let (Key { id1, id2, link_type }, now_ms) = (key, since_epoch_ms());
        change(connection, Statement::HideLink, &[&id1, &id2, &link_type]).await?;
        change(connection, Statement::ChangeCount, &[&-1_i64, &now_ms, &id1, &link_type]).await?;
        execute(connection, Statement::Commit, &[]).await?;
        self.effects.links_hidden = 1;
        Ok(())
    }

    /// Reads links by their keys. LinkBench writes the list of keys as text, so that it is parsed each time.
    async fn multiget(&mut self, connection: &mut Connection) -> Result<(), Error> {
        use std::fmt::Write;
        self.sql.clear();
        let (id1, link_type) = (self.operation.id1, self.link_type());
        let _ = write!(
            self.sql,
            "SELECT id1, id2, link_type, visibility, data, version, time FROM linktable \
             WHERE id1 = {id1} AND link_type = {link_type} AND id2 IN (",
        ); // Writing to a String cannot fail.
        for (index, id2) in self.operation.id2s.iter().enumerate() {
            let _ = write!(self.sql, "{}{id2}", if index == 0 { "" } else { ", " });
        }
        self.sql.push(')');
        let out = connection.out();
        frontend::parse(out, "", &self.sql, &[])?;
        frontend::bind(out, "", &[])?;
        frontend::execute(out);
        exchange(connection, 0, |_| Ok(())).await.map(|_| ())
    }

    /// Reads the newest links, or those that continue a list.
    async fn list(&mut self, connection: &mut Connection) -> Result<(), Error> {
        let continued = self.operation.history.and_then(|index| self.histories.get(index).copied());
        let now = History { id1: self.operation.id1, link_type: self.operation.link_type, time_ms: i64::MAX };
        let from = continued.unwrap_or(now);
        let (id1, link_type) = (from.id1 as i64, FIRST_LINK_TYPE + from.link_type as i64);
        let offset = i64::from(continued.is_some());
        append(
            connection,
            Statement::ListLinks,
            &[&id1, &link_type, &0_i64, &from.time_ms, &LIST_MAX, &offset],
        )?;
        let mut oldest_ms = None;
        self.effects.links_listed = exchange(connection, LIST_MAX as u64, |row| {
            oldest_ms = Some(number(row, 6)?);
            Ok(())
        })
        .await?;
        self.remember(from, oldest_ms);
        Ok(())
    }

    /// Remembers that a list has older links, or forgets one that was continued to its end.
    fn remember(&mut self, from: History, oldest_ms: Option<i64>) {
        let next = oldest_ms.map(|time_ms| History { time_ms, ..from });
        match (self.operation.history, next) {
            (Some(index), Some(next)) => self.histories[index] = next,
            (Some(index), None) => {
                self.block(index);
                self.histories.swap_remove_back(index);
            }
            (None, Some(next)) => {
                let is_same = |one: &History| one.key() == next.key();
                if self.blocked.contains(&next.key()) || self.histories.iter().any(is_same) {
                    return;
                }
                if self.histories.len() < HISTORIES_MAX {
                    self.histories.push_back(next);
                } else {
                    let index = self.stream.below(HISTORIES_MAX as u64) as usize;
                    self.block(index);
                    self.histories[index] = next;
                }
            }
            (None, None) => {}
        }
    }

    /// A list leaves the memory. LinkBench keeps its key, unless it is the last one, and remembers no list with it.
    fn block(&mut self, index: usize) {
        if self.shape.distributions == Distributions::Executed && index + 1 < self.histories.len() {
            self.blocked.insert(self.histories[index].key());
        }
    }
}

impl User for Requester {
    type Tally = Tally;

    async fn prepare(&mut self, connection: &mut Connection) -> Result<(), Error> {
        let nodes = nodes_in(&comment_of(connection, "linktable").await?, self.shape)?;
        // After a reconnect, the client goes on where it was.
        if self.draws.is_none() {
            self.draws = Some(Draws::new(nodes, self.shape));
        }
        for (name, sql) in STATEMENTS {
            connection.prepare(name, sql, &[]).await?;
        }
        Ok(())
    }

    #[inline]
    fn draw(&mut self, tally: &mut Tally) -> usize {
        self.effects = Effects::default();
        if let Some(draws) = &mut self.draws {
            draws.draw(&mut self.operation, self.histories.len(), &mut self.stream, tally);
        }
        self.operation.kind as usize
    }

    #[inline]
    async fn attempt(&mut self, connection: &mut Connection) -> Result<Ending, Error> {
        self.effects = self.effects.of_rollback();
        let (id, now_s) = (self.operation.id1 as i64, || (since_epoch_ms() / 1000) as i32);
        match self.operation.kind {
            Kind::GetNode => drop(execute(connection, Statement::GetNode, &[&id]).await?),
            Kind::GetLinksList => self.list(connection).await?,
            Kind::MultigetLink => self.multiget(connection).await?,
            Kind::CountLink => {
                let link_type = self.link_type();
                execute(connection, Statement::CountLink, &[&id, &link_type]).await?;
            }
            Kind::AddLink => self.write_link(connection, true).await?,
            Kind::UpdateLink => {
                let inserts = self.draws.as_ref().is_some_and(Draws::updates_by_insert);
                self.write_link(connection, inserts).await?;
            }
            Kind::DeleteLink => self.delete_link(connection).await?,
            Kind::AddNode => {
                let data = &self.operation.data[..];
                change(connection, Statement::InsertNode, &[&NODE_TYPE, &1_i64, &now_s(), &data]).await?;
                self.effects.nodes_added = 1;
            }
            Kind::UpdateNode => {
                let data = &self.operation.data[..];
                let parameters: [&dyn Parameter; 5] = [&2_i64, &now_s(), &data, &id, &NODE_TYPE];
                execute(connection, Statement::UpdateNode, &parameters).await?;
            }
            Kind::DeleteNode => {
                self.effects.nodes_deleted =
                    execute(connection, Statement::DeleteNode, &[&id, &NODE_TYPE]).await?;
            }
        }
        Ok(Ending::Committed)
    }

    #[inline]
    fn add_to_counters(&self, is_committed: bool, counters: &mut [u64]) {
        let effects = if is_committed { self.effects } else { self.effects.of_rollback() };
        counters.iter_mut().zip(effects.values()).for_each(|(counter, effect)| *counter += effect);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::comment;
    use serde_json::json;

    fn requester() -> Requester {
        let workload = LinkBench::read(&json!({"edition": "2011"})).expect("sound");
        workload.user(ClientId { client: 0, clients: 1, thread: 0, seed: 1 })
    }

    #[test]
    fn the_comment_of_data_tells_whether_they_fit() {
        let shape = requester().shape;
        assert_eq!(nodes_in(&comment(1234, shape, 5, 7), shape).expect("fits"), 1234);
        for (comment, why) in [
            (String::new(), "load them first"),
            (MARK.to_owned(), "load them first"),
            (comment(1234, Shape::default(), 5, 7), "other parameters"),
            (comment(1234, shape, 5, 7).replace("format=", "format=0"), "another version"),
        ] {
            let error = nodes_in(&comment, shape).expect_err("does not fit").to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_wrong_specification_is_refused() {
        for wrong in [
            json!({"edition": "2012"}),
            json!({"distributions": "real"}),
            json!({"nodes": 5}),
            json!({"sizes": "real"}),
        ] {
            assert!(LinkBench::read(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lists_of_the_highest_length_are_remembered_until_they_end() {
        let mut client = requester();
        let list = |id1, time_ms| History { id1, link_type: 0, time_ms };
        client.remember(list(1, i64::MAX), Some(500));
        client.remember(list(1, i64::MAX), Some(600)); // the same list again
        client.remember(list(2, i64::MAX), None); // a short one
        assert_eq!(client.histories, [list(1, 500)]);
        client.operation.history = Some(0);
        client.remember(list(1, 500), Some(400));
        assert_eq!(client.histories, [list(1, 400)]);
        client.remember(list(1, 400), None);
        assert!(client.histories.is_empty());
        client.operation.history = None;
        for id1 in 0..=HISTORIES_MAX as u64 {
            client.remember(list(id1, i64::MAX), Some(1));
        }
        assert_eq!(client.histories.len(), HISTORIES_MAX);
    }

    #[test]
    fn a_list_that_ended_before_others_is_not_remembered_again_as_in_the_programs() {
        for (distributions, remembered) in [("executed", [2].as_slice()), ("configured", &[2, 1])] {
            let workload = LinkBench::read(&json!({"distributions": distributions})).expect("sound");
            let mut client = workload.user(ClientId { client: 0, clients: 1, thread: 0, seed: 1 });
            let list = |id1| History { id1, link_type: 0, time_ms: i64::MAX };
            let remember = |client: &mut Requester, id1, history, oldest_ms| {
                client.operation.history = history;
                client.remember(list(id1), oldest_ms);
            };
            for id1 in [1, 2, 3] {
                remember(&mut client, id1, None, Some(5));
            }
            remember(&mut client, 3, Some(2), None); // the last one
            remember(&mut client, 1, Some(0), None);
            remember(&mut client, 1, None, Some(5));
            assert!(client.histories.iter().map(|one| one.id1).eq(remembered.iter().copied()));
            remember(&mut client, 3, None, Some(5));
            assert_eq!(client.histories.back().map(|one| one.id1), Some(3));
        }
    }
}
