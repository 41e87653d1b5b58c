//! The database before and after: may it be loaded, the mark, and cleaning up.

use super::error::{LoadError, Stage};
use crate::io::{Connection, Error};
use crate::tpcc::population::{Population, TABLES, Table};
use crate::tpcc::schema::{CREATE_MARK, FORMAT, MARK, ROUTINES};

/// Settings of every session of a load. A crash during a load leaves no mark, so nothing is lost by
/// not waiting for each commit; what is written is as durable as ever after the next checkpoint.
pub const SESSION: &str = "SET search_path = public; SET synchronous_commit = off; \
    SET statement_timeout = 0; SET maintenance_work_mem = '256MB'; SET client_min_messages = error";

/// Makes sure that none of our tables is in the way, and begins the dataset: the mark's table without its row.
pub async fn begin(connection: &mut Connection, into_existing: bool) -> Result<(), LoadError> {
    let failed = |error: Error| LoadError::from_io(Stage::Create, "look at the database", &error);
    let existing = existing_tables(connection).await.map_err(failed)?;
    if !existing.is_empty() {
        let names = existing.join(", ");
        if !into_existing {
            let message = format!(
                "the database already has tables of these names: {names}; \
                name another database, or replace what pgdyno loaded there with --into-existing"
            );
            return Err(LoadError::new(Stage::Create, message));
        }
        if !are_ours(connection, &existing).await.map_err(failed)? {
            let message = format!(
                "the tables {names} hold rows that pgdyno did not load; \
                they are left alone: name another database"
            );
            return Err(LoadError::new(Stage::Create, message));
        }
        let dropped = connection.simple(&format!("DROP TABLE {names}")).await;
        dropped.map_err(|error| {
            LoadError::from_io(Stage::Create, "drop the tables of an earlier load", &error)
        })?;
    }
    let created = connection.simple(CREATE_MARK).await;
    created.map_err(|error| LoadError::from_io(Stage::Create, &format!("create {MARK}"), &error))?;
    Ok(())
}

/// Creates or replaces the routines.
pub async fn create_routines(connection: &mut Connection) -> Result<(), LoadError> {
    for routine in ROUTINES {
        let created = connection.simple(routine).await;
        created.map_err(|error| LoadError::from_io(Stage::Index, "create the routines", &error))?;
    }
    Ok(())
}

/// Writes the row that makes the dataset whole.
pub async fn mark(
    connection: &mut Connection,
    population: &Population,
    warehouses: u32,
    seed: u64,
) -> Result<(), LoadError> {
    let c_load = population.c_load();
    // With synchronous_commit, so that the mark outlives a crash, and with it all that was written before it.
    let sql = format!(
        "SET synchronous_commit = on; INSERT INTO {MARK} (workload, scale, seed, format, c_load) \
         VALUES ('tpcc', {warehouses}, {seed}, {FORMAT}, {c_load})"
    );
    let marked = connection.simple(&sql).await;
    marked.map_err(|error| LoadError::from_io(Stage::Analyze, "mark the dataset as whole", &error))?;
    Ok(())
}

/// Drops what a failed load has left.
pub async fn clean_up(connection: &mut Connection, created: &[Table]) -> Result<(), Error> {
    let names: Vec<_> = created.iter().map(|table| table.name()).chain([MARK]).collect();
    connection.simple(&format!("DROP TABLE IF EXISTS {}", names.join(", "))).await.map(|_| ())
}

async fn existing_tables(connection: &mut Connection) -> Result<Vec<String>, Error> {
    let names: Vec<_> = TABLES.iter().map(|table| table.name()).chain([MARK]).collect();
    let sql = format!(
        "SELECT relname FROM pg_catalog.pg_class \
         WHERE relnamespace = 'public'::regnamespace AND relname IN ('{}') ORDER BY relname",
        names.join("', '")
    );
    let rows = connection.simple(&sql).await?;
    Ok(rows.into_iter().flatten().flatten().collect())
}

/// Ours are tables beside a mark, even one whose load was interrupted, and empty tables.
async fn are_ours(connection: &mut Connection, existing: &[String]) -> Result<bool, Error> {
    if existing.iter().any(|name| name == MARK) {
        return Ok(true);
    }
    for name in existing {
        if !connection.simple(&format!("SELECT FROM {name} LIMIT 1")).await?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}
