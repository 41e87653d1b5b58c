//! Tables that already exist in the database.

use super::partition::{Bound, hold_all};
use super::tables;
use loader::{LoadError, Replaceable, Stage};
use reactor::{Connection, Error};

/// Checks that the four tables are absent, or pgbench's and replaceable.
///
/// The columns identify pgbench's tables. Only the marker identifies the owner.
pub async fn check_tables(connection: &mut Connection, existing: Replaceable) -> Result<(), LoadError> {
    let found = connection.simple(include_str!("sql/tables.sql")).await;
    let found = found.map_err(|error| LoadError::from_io(Stage::Create, "look at the database", &error))?;
    for row in &found {
        let [Some(name), Some(kind), columns, _] = row.as_slice() else { continue };
        let columns = columns.as_deref().unwrap_or_default();
        if !matches!(kind.as_str(), "r" | "p") || !tables::are_pgbench_columns(name, columns) {
            let message = format!(
                "{name} exists and is not pgbench's: its columns are ({columns}); \
                 it is left alone: name another database"
            );
            return Err(LoadError::new(Stage::Create, message));
        }
    }
    let names = |of: &dyn Fn(&Vec<Option<String>>) -> bool| {
        let names: Vec<_> =
            found.iter().filter(|row| of(row)).filter_map(|row| row.first()?.as_deref()).collect();
        names.join(", ")
    };
    let all = names(&|_| true);
    let unmarked = names(&|row| row.last().and_then(Option::as_deref) != Some(tables::MARK));
    let message = match existing {
        Replaceable::Nothing if !all.is_empty() => format!(
            "the database already has tables of these names: {all}; \
             name another database, or replace what pgdyno loaded there with --into-existing"
        ),
        Replaceable::Marked if !unmarked.is_empty() => format!(
            "the database has {unmarked}, which pgdyno did not load (without the comment '{}'): all is left as it is; \
             name another database, or overwrite them with --into-existing --replace",
            tables::MARK
        ),
        _ => return Ok(()),
    };
    Err(LoadError::new(Stage::Create, message))
}

/// A partition that rows can be copied to.
pub struct Partition {
    /// Quoted name.
    pub name: String,
    /// Bounds.
    pub bound: Bound,
    /// Whether it has a primary key.
    pub has_key: bool,
}

/// Storage of the accounts.
pub struct Accounts {
    /// Whether the key is a `bigint`.
    pub big: bool,
    /// Whether a foreign key references one of the four tables.
    pub referred_to: bool,
    /// Whether columns may get temporary defaults: the tables are owned by the user, and have no defaults.
    pub may_have_defaults: bool,
    /// Tables with the accounts.
    pub stored: Stored,
}

/// Tables that contain the accounts.
pub enum Stored {
    /// One table.
    Whole,
    /// Partitions with known bounds.
    Divided(Vec<Partition>),
    /// Partitions with unknown bounds: the server routes the rows.
    Elsewhere,
}

impl Accounts {
    /// Reads the storage of the accounts for a number of accounts. `None` if the table does not exist.
    pub async fn look(connection: &mut Connection, accounts: i64) -> Result<Option<Self>, Error> {
        let found = connection.simple(include_str!("sql/accounts.sql")).await?;
        let Some([big, divided_by, referred_to, may_have_defaults]) = found.first().map(Vec::as_slice) else {
            return Ok(None);
        };
        let is_true = |text: &Option<String>| text.as_deref() == Some("t");
        let (big, referred_to, may_have_defaults) =
            (is_true(big), is_true(referred_to), is_true(may_have_defaults));
        let stored = match divided_by.as_deref() {
            None => Stored::Whole,
            Some("RANGE (aid)" | "HASH (aid)") => {
                partitions(connection, accounts).await?.map_or(Stored::Elsewhere, Stored::Divided)
            }
            Some(_) => Stored::Elsewhere,
        };
        Ok(Some(Self { big, referred_to, may_have_defaults, stored }))
    }
}

async fn partitions(connection: &mut Connection, accounts: i64) -> Result<Option<Vec<Partition>>, Error> {
    let found = connection.simple(include_str!("sql/partitions.sql")).await?;
    let read = |row: Vec<Option<String>>| {
        let [Some(name), Some(kind), Some(bound), Some(has_key)] = <[_; 4]>::try_from(row).ok()? else {
            return None;
        };
        let bound = Bound::parse(&bound)?;
        (kind == "r").then_some(Partition { name, bound, has_key: has_key == "t" })
    };
    let Some(partitions) = found.into_iter().map(read).collect::<Option<Vec<_>>>() else { return Ok(None) };
    let bounds: Vec<_> = partitions.iter().map(|partition| partition.bound).collect();
    Ok(hold_all(&bounds, accounts).then_some(partitions))
}
