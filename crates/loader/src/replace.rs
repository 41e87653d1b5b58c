//! Tables of earlier loads, which a load replaces, and tables of a load that failed.

use super::dataset::{Replaceable, Table};
use super::error::{LoadError, Stage};
use reactor::{Connection, Error};

/// Returns the names of existing tables, and whether the comment of each begins with the mark. The statement
/// returns names and comments.
pub async fn marked(
    control: &mut Connection,
    statement: &str,
    mark: &str,
) -> Result<Vec<(String, bool)>, LoadError> {
    let rows = control.simple(statement).await.map_err(|error| unreadable(&error))?;
    let found = rows.into_iter().filter_map(|row| match row.as_slice() {
        [Some(name), comment] => {
            Some((name.clone(), comment.as_deref().is_some_and(|text| text.starts_with(mark))))
        }
        _ => None,
    });
    Ok(found.collect())
}

/// The error of a database whose tables cannot be listed.
#[must_use]
pub fn unreadable(error: &Error) -> LoadError {
    LoadError::from_io(Stage::Create, "look at the database", error)
}

/// Drops existing tables, given by name and whether pgdyno loaded them. Refuses those that it must keep.
pub async fn replace(
    control: &mut Connection,
    existing: Replaceable,
    found: &[(String, bool)],
) -> Result<(), LoadError> {
    let names = |only_foreign: bool| {
        let chosen = found.iter().filter(|(_, is_marked)| !(only_foreign && *is_marked));
        chosen.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
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
