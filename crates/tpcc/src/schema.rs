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
#[must_use]
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

/// Creates the routines with deviations as temporary functions of a session, so that the dataset stays as it is; empty
/// if they are those of the dataset.
#[must_use]
pub fn temporary_routines(deviations: Deviations) -> Vec<String> {
    let changed = |sql: &'static str| deviations.render(sql) != Deviations::NONE.render(sql);
    if !ROUTINES.iter().any(|(_, create)| changed(create)) {
        return Vec::new();
    }
    ROUTINES.iter().map(|(_, create)| temporary(&deviations.render(create))).collect()
}

/// SQL that names the routines, with those of the session.
#[must_use]
pub fn temporary(sql: &str) -> String {
    sql.replace("tpcc_", "pg_temp.tpcc_")
}
/// The table whose one row marks a dataset as whole.
pub const MARK: &str = "pgdyno_dataset";
/// Creates the mark's table, without its row.
pub const CREATE_MARK: &str = include_str!("sql/table/pgdyno_dataset.sql");

/// The server-side routines, name and statement, in an order that they can be created in.
pub const ROUTINES: [(&str, &str); 7] = [
    ("tpcc_customer_by_name", include_str!("sql/routine/customer_by_name.sql")),
    ("tpcc_order_lines_one_by_one", include_str!("sql/routine/order_lines_one_by_one.sql")),
    ("tpcc_new_order", include_str!("sql/routine/new_order.sql")),
    ("tpcc_payment", include_str!("sql/routine/payment.sql")),
    ("tpcc_order_status", include_str!("sql/routine/order_status.sql")),
    ("tpcc_delivery", include_str!("sql/routine/delivery.sql")),
    ("tpcc_stock_level", include_str!("sql/routine/stock_level.sql")),
];

impl Table {
    /// Its name in the database.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OrderLine => "order_line",
            Self::Stock => "stock",
            Self::Customer => "customer",
            Self::History => "history",
            Self::Orders => "orders",
            Self::Item => "item",
            Self::NewOrder => "new_order",
            Self::District => "district",
            Self::Warehouse => "warehouse",
        }
    }

    /// The statement that creates it, without indexes.
    #[must_use]
    pub fn create(self) -> &'static str {
        match self {
            Self::OrderLine => include_str!("sql/table/order_line.sql"),
            Self::Stock => include_str!("sql/table/stock.sql"),
            Self::Customer => include_str!("sql/table/customer.sql"),
            Self::History => include_str!("sql/table/history.sql"),
            Self::Orders => include_str!("sql/table/orders.sql"),
            Self::Item => include_str!("sql/table/item.sql"),
            Self::NewOrder => include_str!("sql/table/new_order.sql"),
            Self::District => include_str!("sql/table/district.sql"),
            Self::Warehouse => include_str!("sql/table/warehouse.sql"),
        }
    }

    /// Its columns in the order in which the population has them, with commas.
    #[must_use]
    pub fn columns(self) -> String {
        let lines = self.create().lines().filter_map(|line| line.strip_prefix("    "));
        let mut names: Vec<_> = lines.filter_map(|line| line.split_whitespace().next()).collect();
        names.dedup(); // A column whose type depends on a deviation has two lines.
        names.join(", ")
    }

    /// The statements that create its primary key and further index.
    pub fn indexes(self) -> impl Iterator<Item = &'static str> {
        self.index_texts().iter().copied()
    }

    fn index_texts(self) -> &'static [&'static str] {
        match self {
            Self::OrderLine => &[include_str!("sql/index/order_line_key.sql")],
            Self::Stock => &[include_str!("sql/index/stock_key.sql")],
            Self::Customer => {
                &[include_str!("sql/index/customer_key.sql"), include_str!("sql/index/customer_name.sql")]
            }
            Self::History => &[],
            Self::Orders => {
                &[include_str!("sql/index/orders_key.sql"), include_str!("sql/index/orders_customer.sql")]
            }
            Self::Item => &[include_str!("sql/index/item_key.sql")],
            Self::NewOrder => &[include_str!("sql/index/new_order_key.sql")],
            Self::District => &[include_str!("sql/index/district_key.sql")],
            Self::Warehouse => &[include_str!("sql/index/warehouse_key.sql")],
        }
    }

    /// Bytes on disk of `rows` rows and their indexes, as PostgreSQL 15 has them after a load of two
    /// warehouses, plus the first pages and the free-space and visibility maps, which outweigh a small table.
    #[must_use]
    pub fn bytes_estimated(self, rows: u64) -> u64 {
        const SMALL_TABLE_BYTES: u64 = 80 << 10;
        let bytes_per_row = match self {
            Self::OrderLine => 93 + 32,
            Self::Stock => 342 + 23,
            Self::Customer => 608 + 91,
            Self::History => 80,
            Self::Orders => 60 + 64,
            Self::Item => 106 + 23,
            Self::NewOrder => 45 + 32,
            Self::District => 130 + 30,
            Self::Warehouse => 110 + 30,
        };
        rows * bytes_per_row + SMALL_TABLE_BYTES
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
    fn only_deviations_of_routines_need_temporary_ones() {
        let with = |one| temporary_routines(Deviations::from_iter([one]));
        assert!(with(Deviation::UniformItems).is_empty());
        let own = with(Deviation::Subtransactions);
        assert_eq!(own.len(), ROUTINES.len());
        assert!(own.iter().all(|sql| sql.contains("FUNCTION pg_temp.tpcc_") && !sql.contains(" tpcc_")));
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
        for (name, create) in ROUTINES {
            assert!(create.contains(&format!("CREATE OR REPLACE FUNCTION {name}(")), "{name}");
        }
    }
}
