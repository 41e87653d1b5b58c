//! One connection's part of a load.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::error::{LoadError, Stage};
use super::phase::{Phase, Queue};
use super::progress::Progress;
use super::target;
use crate::io::{Connection, Error, Reactor};
use crate::tpcc::population::{Population, Table};
use crate::wire::backend::Message;
use crate::wire::conninfo::Conninfo;
use crate::wire::{copy, frontend};

/// What all connections of a load share.
pub struct Shared {
    /// The rows.
    pub population: Population,
    /// Counters.
    pub progress: Progress,
    /// Set when the load is to end early: somebody failed, or we were told to stop.
    pub stop: AtomicBool,
}

/// Connects and prepares the session.
pub async fn connect(reactor: &Reactor, conninfo: &Conninfo) -> Result<Connection, LoadError> {
    let failed = |error: Error| LoadError::from_io(Stage::Connect, "connect", &error);
    let mut connection = Connection::connect(reactor, conninfo).await.map_err(failed)?;
    connection.simple(target::SESSION).await.map_err(failed)?;
    Ok(connection)
}

/// Does tables of `phase` until none is left.
pub async fn work(
    connection: &mut Connection,
    phase: Phase,
    queue: &Queue,
    shared: &Shared,
) -> Result<(), LoadError> {
    while let Some(table) = queue.take() {
        if shared.stop.load(Relaxed) {
            return Ok(());
        }
        shared.progress.begin(table);
        let done = match phase {
            Phase::Copy => create_and_fill(connection, table, shared).await,
            Phase::Index => each(connection, table.indexes()).await,
            // Before version 14 COPY FREEZE freezes the rows but does not note in the visibility map that it did.
            // From 13 on an autovacuum would come for so many inserts, in the middle of a trial; VACUUM resets
            // their count, and skips the pages that are known to be frozen.
            Phase::Vacuum => each(connection, &[&format!("VACUUM {}", table.name())]).await,
            Phase::Analyze => each(connection, &[&format!("ANALYZE {}", table.name())]).await,
        };
        done.map_err(|error| {
            LoadError::from_io(phase.stage(), &format!("{} {}", phase.name(), table.name()), &error)
        })?;
    }
    Ok(())
}

async fn each(connection: &mut Connection, statements: &[&str]) -> Result<(), Error> {
    for statement in statements {
        connection.simple(statement).await?;
    }
    Ok(())
}

/// In one transaction, so that the rows can be frozen and the table is there only when it is full.
async fn create_and_fill(connection: &mut Connection, table: Table, shared: &Shared) -> Result<(), Error> {
    connection.simple(&format!("BEGIN; {}", table.create())).await?;
    let copy_in = format!("COPY {} FROM STDIN (FORMAT binary, FREEZE)", table.name());
    frontend::query(connection.out(), &copy_in)?;
    connection.flush().await?;
    while !matches!(connection.next().await?, Message::CopyInResponse(_)) {}
    if !send_rows(connection, table, shared).await? {
        // Stopped: the connection ends in the middle of its COPY, and the server rolls back.
        frontend::copy_fail(connection.out(), "stopped")?;
        connection.flush().await?;
        return match connection.recover().await {
            Err(error) if error.is_fatal() => Err(error),
            _ => Ok(()),
        };
    }
    frontend::copy_done(connection.out());
    connection.flush().await?;
    connection.answer().await?;
    connection.simple("COMMIT").await?;
    shared.progress.created(table);
    Ok(())
}

/// Sends all groups of a table; `false` if it was stopped on the way.
async fn send_rows(connection: &mut Connection, table: Table, shared: &Shared) -> Result<bool, Error> {
    let groups = shared.population.groups(table);
    for group in 0..groups {
        if shared.stop.load(Relaxed) {
            return Ok(false);
        }
        let out = connection.out();
        let begun = frontend::copy_data_begin(out);
        if group == 0 {
            copy::header(out);
        }
        let rows = shared.population.append_group(table, group, out);
        if group + 1 == groups {
            copy::trailer(out);
        }
        frontend::copy_data_end(out, &begun)?;
        let bytes = out.len() as u64;
        connection.flush().await?;
        shared.progress.copied(table, rows, bytes);
        // The server says something during a COPY only to refuse: a full disk shows now, not after the last row.
        let reactor = connection.reactor().clone();
        if let Some(said) = reactor.until(reactor.now(), connection.next()).await {
            said?;
        }
    }
    Ok(true)
}
