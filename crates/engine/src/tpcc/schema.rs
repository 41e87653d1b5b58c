//! The data model: names, SQL and sizes. The SQL stands beside it, one statement or routine a file.

use super::population::Table;

/// The version of the population's bytes, the schema and the mark.
pub const FORMAT: u32 = 1;
/// The table whose one row marks a dataset as whole.
pub const MARK: &str = "pgdyno_dataset";
/// Creates the mark's table, without its row.
pub const CREATE_MARK: &str = include_str!("sql/table/pgdyno_dataset.sql");

/// The server-side routines, in an order that they can be created in.
pub const ROUTINES: [&str; 7] = [
    include_str!("sql/routine/customer_by_name.sql"),
    include_str!("sql/routine/order_lines_one_by_one.sql"),
    include_str!("sql/routine/new_order.sql"),
    include_str!("sql/routine/payment.sql"),
    include_str!("sql/routine/order_status.sql"),
    include_str!("sql/routine/delivery.sql"),
    include_str!("sql/routine/stock_level.sql"),
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

    /// The statements that create its primary key and further index.
    #[must_use]
    pub fn indexes(self) -> &'static [&'static str] {
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
