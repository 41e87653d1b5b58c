//! The data model: names, SQL and sizes. The SQL stands beside it, one statement or routine a file.

use std::sync::LazyLock;

use super::deviation::Deviations;
use super::population::{TABLES, Table};
use loader::format::format_of;

/// The version of the population's bytes: raised when they change.
const POPULATION: &str = "1";
/// Which format a dataset has: a digest of everything that a load writes, so that no dataset with older rows, indexes
/// or routines passes for one of today's.
pub static FORMAT: LazyLock<String> = LazyLock::new(|| {
    let tables = TABLES.iter().flat_map(|table| std::iter::once(table.create()).chain(table.indexes()));
    let routines = ROUTINES.iter().map(|(_, create)| *create);
    let rendered: Vec<_> = tables.chain(routines).map(|sql| Deviations::NONE.render(sql)).collect();
    format_of([POPULATION, CREATE_MARK].into_iter().chain(rendered.iter().map(AsRef::as_ref)))
});

/// The format of a dataset with deviations: their names follow the digest, and then the number of sets of tables.
pub fn format_with(of_data: Deviations, sets: u32) -> String {
    let names = if of_data == Deviations::NONE { String::new() } else { format!("+{of_data}") };
    let sets = if sets == 1 { String::new() } else { format!(",table-sets={sets}") };
    format!("{}{names}{sets}", *FORMAT)
}

/// Creates the foreign keys and indexes of the deviation `foreign-keys`, in an order that they can be created in.
pub const FOREIGN_KEYS: [&str; 11] = [
    include_str!("sql/foreign_key/district_references.sql"),
    include_str!("sql/foreign_key/stock_item_index.sql"),
    include_str!("sql/foreign_key/stock_references.sql"),
    include_str!("sql/foreign_key/customer_references.sql"),
    include_str!("sql/foreign_key/history_customer_index.sql"),
    include_str!("sql/foreign_key/history_district_index.sql"),
    include_str!("sql/foreign_key/history_references.sql"),
    include_str!("sql/foreign_key/orders_references.sql"),
    include_str!("sql/foreign_key/new_order_references.sql"),
    include_str!("sql/foreign_key/order_line_supply_index.sql"),
    include_str!("sql/foreign_key/order_line_references.sql"),
];

/// The routines with deviations, in a schema of their own, so that the dataset stays as it is. They are not temporary:
/// PostgreSQL 12.3 and 13.1 fail at the end of a session that has such functions ("no known snapshots").
pub struct OwnRoutines {
    schema: String,
    statements: Vec<String>,
}

impl OwnRoutines {
    /// The routines of a run; `None` if they are those of the dataset. `are_missing`: the dataset has none.
    pub fn new(deviations: Deviations, are_missing: bool) -> Option<Self> {
        let rendered: Vec<_> = ROUTINES.iter().map(|(_, create)| deviations.render(create)).collect();
        let differs = |(sql, (_, create)): (&_, &(_, &'static str))| *sql != Deviations::NONE.render(create);
        if !are_missing && !rendered.iter().zip(&ROUTINES).any(differs) {
            return None;
        }
        let digest = format_of(rendered.iter().map(AsRef::as_ref));
        let mut own = Self { schema: format!("{SCHEMA_PREFIX}{digest}"), statements: Vec::new() };
        own.statements = rendered.iter().map(|sql| own.sql(sql)).collect();
        Some(own)
    }

    /// SQL that names the routines, with those of the schema.
    pub fn sql(&self, sql: &str) -> String {
        sql.replace("tpcc_", &format!("{}.tpcc_", self.schema))
    }

    /// Whether they exist. The name of the schema has a digest of them, and one transaction creates them all.
    pub fn exist(&self) -> String {
        format!("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = '{}'", self.schema)
    }

    /// Creates them. Clients that do so at the same time wait for each other.
    pub fn create(&self) -> String {
        format!(
            "BEGIN; SELECT pg_advisory_xact_lock({ADVISORY_LOCK}, 0); CREATE SCHEMA IF NOT EXISTS {}; {}; COMMIT",
            self.schema,
            self.statements.join("; ")
        )
    }
}

/// How the names of the schemas of [`OwnRoutines`] begin; 12 hexadecimal digits follow.
pub const SCHEMA_PREFIX: &str = "pgdyno_";
/// The first key of the advisory locks; the second one is a warehouse, or 0 for the routines.
const ADVISORY_LOCK: i32 = 1_346_847_556;
/// The table whose one row marks a dataset as whole.
pub const MARK: &str = "pgdyno_dataset";
/// Creates the mark's table, without its row.
pub const CREATE_MARK: &str = include_str!("sql/table/pgdyno_dataset.sql");

/// The server-side routines, name and statement, in an order that they can be created in.
pub const ROUTINES: [(&str, &str); 7] = [
    ("tpcc_customer_by_name", include_str!("sql/procedures/customer_by_name.sql")),
    ("tpcc_order_lines_one_by_one", include_str!("sql/procedures/order_lines_one_by_one.sql")),
    ("tpcc_new_order", include_str!("sql/procedures/new_order.sql")),
    ("tpcc_payment", include_str!("sql/procedures/payment.sql")),
    ("tpcc_order_status", include_str!("sql/procedures/order_status.sql")),
    ("tpcc_delivery", include_str!("sql/procedures/delivery.sql")),
    ("tpcc_stock_level", include_str!("sql/procedures/stock_level.sql")),
];

/// Routines with the names and signatures of those of HammerDB, which call ours.
pub const HAMMERDB_ROUTINES: [(&str, &str); 5] = [
    ("neword", include_str!("sql/hammerdb/neword.sql")),
    ("payment", include_str!("sql/hammerdb/payment.sql")),
    ("delivery", include_str!("sql/hammerdb/delivery.sql")),
    ("ostat", include_str!("sql/hammerdb/ostat.sql")),
    ("slev", include_str!("sql/hammerdb/slev.sql")),
];

/// What a table consists of.
struct Definition {
    name: &'static str,
    create: &'static str,
    indexes: &'static [&'static str],
    /// Bytes on disk of a row and its index entries, as PostgreSQL 15 has them after a load of two warehouses.
    row_bytes: u64,
}

macro_rules! definition {
    ($name:literal, [$($index:literal),*], $row_bytes:expr) => {
        Definition {
            name: $name,
            create: include_str!(concat!("sql/table/", $name, ".sql")),
            indexes: &[$(include_str!(concat!("sql/index/", $index, ".sql"))),*],
            row_bytes: $row_bytes,
        }
    };
}

/// In the order of [`TABLES`].
const DEFINITIONS: [Definition; 9] = [
    definition!("order_line", ["order_line_key"], 93 + 32),
    definition!("stock", ["stock_key"], 342 + 23),
    definition!("customer", ["customer_key", "customer_name"], 608 + 91),
    definition!("history", [], 80),
    definition!("orders", ["orders_key", "orders_customer"], 60 + 64),
    definition!("item", ["item_key"], 106 + 23),
    definition!("new_order", ["new_order_key"], 45 + 32),
    definition!("district", ["district_key"], 130 + 30),
    definition!("warehouse", ["warehouse_key"], 110 + 30),
];

impl Table {
    fn definition(self) -> &'static Definition {
        &DEFINITIONS[self as usize]
    }

    /// Its name in the database.
    pub fn name(self) -> &'static str {
        self.definition().name
    }

    /// The statement that creates it, without indexes.
    pub fn create(self) -> &'static str {
        self.definition().create
    }

    /// Its columns in the order in which the population has them, with commas.
    pub fn columns(self) -> String {
        let lines = self.create().lines().filter_map(|line| line.strip_prefix("    "));
        let mut names: Vec<_> = lines.filter_map(|line| line.split_whitespace().next()).collect();
        names.dedup(); // A column whose type depends on a deviation has two lines.
        names.join(", ")
    }

    /// The statements that create its primary key and further index.
    pub fn indexes(self) -> impl Iterator<Item = &'static str> {
        self.definition().indexes.iter().copied()
    }

    /// Bytes on disk of `rows` rows and their indexes, plus the first pages and the free-space and visibility
    /// maps, which outweigh a small table.
    pub fn bytes_estimated(self, rows: u64) -> u64 {
        const SMALL_TABLE_BYTES: u64 = 80 << 10;
        rows * self.definition().row_bytes + SMALL_TABLE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deviation::Deviation;

    #[test]
    fn without_deviations_the_format_is_the_one_before_there_were_any() {
        assert_eq!(*FORMAT, "2ce4fd2e73ff");
        assert_eq!(format_with(Deviations::NONE, 1), *FORMAT);
        let data = Deviations::from_iter([Deviation::HalfBadCredit]);
        assert_eq!(format_with(data, 1), format!("{}+half-bad-credit", *FORMAT));
        let sets = Deviations::from_iter([Deviation::SysbenchSql]);
        assert_eq!(format_with(sets, 3), format!("{}+sysbench-sql,table-sets=3", *FORMAT));
    }

    #[test]
    fn the_columns_are_those_of_the_table() {
        assert_eq!(Table::NewOrder.columns(), "no_w_id, no_o_id, no_d_id");
        assert_eq!(Table::Warehouse.columns().split(", ").count(), 9);
        assert_eq!(Table::Stock.columns().split(", ").last(), Some("s_data"));
        for table in TABLES {
            let own = crate::sysbench_sql::schema::create(table);
            for column in table.columns().split(", ") {
                assert!(own.contains(&format!("    {column} ")), "{column}");
            }
        }
    }

    #[test]
    fn every_mark_in_the_sql_names_a_deviation_and_none_is_left_after_rendering() {
        let texts = TABLES.iter().flat_map(|table| std::iter::once(table.create()).chain(table.indexes()));
        let texts = texts.chain(ROUTINES.iter().map(|(_, create)| *create));
        for sql in texts.chain(crate::statements::texts()) {
            for mark in sql
                .split("--[")
                .skip(1)
                .flat_map(|line| line.split('\n').next().unwrap_or_default().split('[').map(str::trim))
            {
                let (word, name) = mark.trim_end_matches(']').split_once(' ').expect(mark);
                assert!(["if", "unless"].contains(&word), "{mark}");
                assert!(Deviation::ALL.iter().any(|one| one.name() == name), "{mark}");
            }
            let all: Deviations = Deviation::ALL.iter().copied().collect();
            assert!(!all.render(sql).contains("--["));
        }
    }

    #[test]
    fn routines_have_a_schema_of_their_own_if_they_differ_or_are_missing() {
        let with = |one: &[_], missing| OwnRoutines::new(one.iter().copied().collect(), missing);
        assert!(with(&[Deviation::UniformItems], false).is_none());
        let (foreign, own) = (with(&[], true), with(&[Deviation::Subtransactions], false));
        let (foreign, own) = (foreign.expect("missing"), own.expect("different"));
        assert_ne!(foreign.schema, own.schema);
        for (name, create) in ROUTINES {
            assert!(create.contains(name) && own.create().contains(&format!("{}.{name}(", own.schema)));
        }
        assert!(own.statements.iter().all(|sql| !sql.contains(" tpcc_")));
        assert!(
            own.sql(include_str!("sql/call/payment.sql"))
                .contains(&format!("FROM {}.tpcc_payment", own.schema))
        );
        let lock = format!("pg_advisory_xact_lock({ADVISORY_LOCK}, home_w_id)");
        assert!(include_str!("sql/procedures/delivery.sql").contains(&lock));
    }

    #[test]
    fn another_routine_is_another_format() {
        let whole = |change: &str| {
            let parts: Vec<String> = ROUTINES.iter().map(|(_, create)| create.replace('5', change)).collect();
            format_of(parts.iter().map(String::as_str))
        };
        assert_eq!(whole("5"), format_of(ROUTINES.iter().map(|(_, create)| *create)));
        assert_ne!(whole("5"), whole("6"));
    }

    #[test]
    fn the_routines_are_created_under_the_names_that_they_are_dropped_by() {
        for (name, create) in HAMMERDB_ROUTINES {
            assert!(create.contains(&format!("CREATE FUNCTION {name}(")), "{name}");
        }
        for (name, create) in ROUTINES {
            assert!(create.contains(&format!("CREATE OR REPLACE FUNCTION {name}(")), "{name}");
        }
    }
}
