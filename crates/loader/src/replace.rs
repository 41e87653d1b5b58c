//! Tables of earlier loads, which a load replaces, and tables of a load that failed.

use super::dataset::{Replaceable, Table};
use super::error::{LoadError, Stage};
use reactor::{Connection, Error};

/// The beginning of the comment of tables that pgdyno has made.
pub const MARK: &str = "made by pgdyno";

/// Returns the comment of a table in the schema public; empty without table or comment.
pub async fn comment_of(connection: &mut Connection, table: &str) -> Result<String, Error> {
    let sql =
        format!("SELECT pg_catalog.obj_description(pg_catalog.to_regclass('public.{table}'), 'pg_class')");
    let rows = connection.simple(&sql).await?;
    Ok(rows.into_iter().flatten().flatten().next().unwrap_or_default())
}

/// Writes the comment that makes the data complete, with synchronous_commit so that it outlives a crash.
pub async fn mark_complete(control: &mut Connection, table: &str, comment: &str) -> Result<(), LoadError> {
    let sql = format!("SET synchronous_commit = on; COMMENT ON TABLE {table} IS '{comment}'");
    let marked = control.simple(&sql).await;
    marked
        .map(|_| ())
        .map_err(|error| LoadError::from_io(Stage::Analyze, "mark the data as complete", &error))
}

/// Drops existing tables: those that `statement` finds, by name and comment, and `is_own` accepts. Refuses those that it
/// must keep.
pub async fn replace(
    control: &mut Connection,
    existing: Replaceable,
    statement: &str,
    is_own: impl Fn(&str) -> bool,
) -> Result<(), LoadError> {
    let rows = control.simple(statement).await;
    let rows = rows.map_err(|error| LoadError::from_io(Stage::Create, "look at the database", &error))?;
    let names = |only_foreign: bool| {
        let chosen = rows.iter().filter_map(|row| match row.as_slice() {
            [Some(_), Some(comment)] if only_foreign && comment.starts_with(MARK) => None,
            [Some(name), _] if is_own(name) => Some(name.as_str()),
            _ => None,
        });
        chosen.collect::<Vec<_>>().join(", ")
    };
    let (all, foreign) = (names(false), names(true));
    let problem = match existing {
        _ if all.is_empty() => return Ok(()),
        Replaceable::Nothing => format!(
            "the database already has {all}; name another database, or replace what pgdyno loaded with --into-existing"
        ),
        Replaceable::Marked if !foreign.is_empty() => {
            format!("the database has {foreign}, which pgdyno did not load; name another database")
        }
        Replaceable::Marked | Replaceable::All => {
            let dropped = control.simple(&format!("DROP TABLE {all}")).await;
            let failed = |error: Error| LoadError::from_io(Stage::Create, "drop the old tables", &error);
            return dropped.map(|_| ()).map_err(failed);
        }
    };
    Err(LoadError::new(Stage::Create, problem))
}

/// Drops the tables that an interrupted load has filled.
pub async fn drop_filled(control: &mut Connection, tables: &[Table], filled: &[usize]) -> Result<(), Error> {
    if filled.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = filled.iter().map(|&table| tables[table].name.as_ref()).collect();
    control.simple(&format!("DROP TABLE IF EXISTS {}", names.join(", "))).await.map(|_| ())
}
