//! The database before and after: may it be loaded, the mark, and cleaning up.

use super::error::{LoadError, Stage};
use crate::io::{Connection, Error};
use crate::tpcc::population::{Population, TABLES, Table};
use crate::tpcc::schema::{CREATE_MARK, FORMAT, MARK, ROUTINES};

/// Settings of every session of a load. A crash during a load leaves no mark, so nothing is lost by
/// not waiting for each commit; what is written is as durable as ever after the next checkpoint.
pub const SESSION: &str = "SET search_path = public; SET synchronous_commit = off; \
    SET statement_timeout = 0; SET maintenance_work_mem = '256MB'; SET client_min_messages = error";

/// Makes sure that nothing of our names is in the way, and begins the dataset: the mark's table without its row.
/// What is there already is an earlier load's if it stands beside the mark, which every load makes first of all;
/// anything else is the user's, empty or not.
pub async fn begin(connection: &mut Connection, into_existing: bool) -> Result<(), LoadError> {
    let failed = |error: Error| LoadError::from_io(Stage::Create, "look at the database", &error);
    let tables = existing_tables(connection).await.map_err(failed)?;
    let routines = existing_routines(connection).await.map_err(failed)?;
    if !tables.is_empty() || !routines.is_empty() {
        let names = [&tables[..], &routines].concat().join(", ");
        if !into_existing {
            let message = format!(
                "the database already has {names}; \
                name another database, or replace what pgdyno loaded there with --into-existing"
            );
            return Err(LoadError::new(Stage::Create, message));
        }
        if !tables.iter().any(|name| name == MARK) {
            let message = format!(
                "the database has {names}, which pgdyno did not load (no {MARK} stands beside): \
                all is left as it is; name another database"
            );
            return Err(LoadError::new(Stage::Create, message));
        }
        drop(connection, &tables, &routines)
            .await
            .map_err(|error| LoadError::from_io(Stage::Create, "drop what an earlier load made", &error))?;
    }
    let created = connection.simple(CREATE_MARK).await;
    created.map_err(|error| LoadError::from_io(Stage::Create, &format!("create {MARK}"), &error))?;
    Ok(())
}

/// Creates or replaces the routines.
pub async fn create_routines(connection: &mut Connection) -> Result<(), LoadError> {
    for (_, create) in ROUTINES {
        let created = connection.simple(create).await;
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
         VALUES ('tpcc', {warehouses}, {seed}, '{}', {c_load})",
        *FORMAT
    );
    let marked = connection.simple(&sql).await;
    marked.map_err(|error| LoadError::from_io(Stage::Analyze, "mark the dataset as whole", &error))?;
    Ok(())
}

/// Drops what a failed load has left.
pub async fn clean_up(connection: &mut Connection, created: &[Table]) -> Result<(), Error> {
    let tables: Vec<_> = created.iter().map(|table| table.name()).chain([MARK]).map(str::to_owned).collect();
    let routines = existing_routines(connection).await?;
    drop(connection, &tables, &routines).await
}

async fn drop(connection: &mut Connection, tables: &[String], routines: &[String]) -> Result<(), Error> {
    let mut statements = vec![format!("DROP TABLE IF EXISTS {}", tables.join(", "))];
    statements.extend(routines.iter().map(|routine| format!("DROP FUNCTION {routine}")));
    connection.simple(&statements.join("; ")).await.map(|_| ())
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

/// The routines of our names, with their arguments' types.
async fn existing_routines(connection: &mut Connection) -> Result<Vec<String>, Error> {
    let names: Vec<_> = ROUTINES.iter().map(|(name, _)| *name).collect();
    let sql = format!(
        "SELECT oid::regprocedure FROM pg_catalog.pg_proc \
         WHERE pronamespace = 'public'::regnamespace AND proname IN ('{}') ORDER BY proname",
        names.join("', '")
    );
    let rows = connection.simple(&sql).await?;
    Ok(rows.into_iter().flatten().flatten().collect())
}
