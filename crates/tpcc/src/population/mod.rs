//! The initial population (clause 4.3.3): the rows of every table as a pure function of the seed.
//!
//! A table is cut into groups of consecutive rows in primary-key order. A group is a function of (seed, table,
//! group), whoever makes it and when, so the same seed gives the same bytes whatever the parallelism. Rows
//! are written as COPY BINARY tuples; nothing is allocated per row. No sockets and no SQL here.

mod customer;
mod field;
mod item;
mod orders;
mod warehouse;

use super::deviation::{Deviation, Deviations};
use super::random::{self, Stream};
use pgwire::copy;

/// Items in all, and rows of `stock` per warehouse.
pub const ITEMS: u32 = 100_000;
/// Districts of a warehouse.
pub const DISTRICTS: u32 = 10;
/// Customers of a district; it begins with as many orders and rows of `history`.
pub const CUSTOMERS: u32 = 3000;
/// The last order of a district that was delivered before the beginning.
pub const DELIVERED: u32 = 2100;
/// All rows bear one instant, 2020-01-01 00:00 UTC, in microseconds since PostgreSQL's epoch, 2000-01-01: the
/// specification asks for "the current date", but then no two loads would hold the same bytes.
pub const POPULATED_AT_US: i64 = 7305 * 86_400 * 1_000_000;

/// Seeds of consecutive sets of tables differ by it: an odd number without a pattern in its bits.
const SET_SEED_STEP: u64 = 0xd1b5_4a32_d192_ed03;

/// A table of the workload, the costliest to copy first: the loader works in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Table {
    /// Lines of orders.
    OrderLine,
    /// Items in a warehouse's stock.
    Stock,
    /// Customers.
    Customer,
    /// Payments made.
    History,
    /// Orders.
    Orders,
    /// Items for sale, common to all warehouses.
    Item,
    /// Orders that wait for delivery.
    NewOrder,
    /// Districts.
    District,
    /// Warehouses.
    Warehouse,
}

/// The nine tables, the costliest first.
pub const TABLES: [Table; 9] = [
    Table::OrderLine,
    Table::Stock,
    Table::Customer,
    Table::History,
    Table::Orders,
    Table::Item,
    Table::NewOrder,
    Table::District,
    Table::Warehouse,
];

/// How a table is cut: so many groups for each warehouse (for all of them: `item`), so many keys in each.
/// A group is some 64 to 200 kB, which is what one flush hands to the socket.
struct Cut {
    groups: u64,
    keys: u32,
}

/// The population of `warehouses` warehouses under one seed.
#[derive(Clone, Copy, Debug)]
pub struct Population {
    seed: u64,
    warehouses: u32,
    c_load: u32,
    deviations: Deviations,
}

impl Population {
    /// The population for `seed`. Nothing is computed yet.
    #[must_use]
    pub fn new(seed: u64, warehouses: u32, deviations: Deviations) -> Self {
        let is_constant = deviations.has(Deviation::ConstantC);
        let c_load = if is_constant { random::C_LAST_CONSTANT } else { random::c_load(seed) };
        Self { seed, warehouses, c_load, deviations }
    }

    /// The population of one of several sets of tables, from 1, which share the constant of the last names.
    #[must_use]
    pub fn of_set(self, set: u32, warehouses: u32) -> Self {
        let seed = self.seed ^ u64::from(set - 1).wrapping_mul(SET_SEED_STEP);
        Self { seed, warehouses, ..self }
    }

    /// Whether types and texts are those of sysbench-tpcc.
    fn is_sysbench(&self) -> bool {
        self.deviations.has(Deviation::SysbenchSql)
    }

    /// The number of a warehouse, in the type of its columns.
    fn append_warehouse_id(&self, warehouse: u32, out: &mut Vec<u8>) {
        if self.is_sysbench() {
            copy::int2(out, warehouse as i16);
        } else {
            copy::int4(out, warehouse as i32);
        }
    }

    /// Five columns of an address.
    fn append_address(&self, stream: &mut Stream, out: &mut Vec<u8>) {
        if self.is_sysbench() {
            field::prefixed_address(stream, out);
        } else {
            field::address(stream, out);
        }
    }

    /// A text of random length, or with a prefix and random letters in the texts of sysbench-tpcc.
    fn append_name(
        &self,
        stream: &mut Stream,
        (low, high): (u32, u32),
        prefix: &[u8],
        letters: (u32, u32),
        out: &mut Vec<u8>,
    ) {
        if self.is_sysbench() {
            let count = stream.uniform(letters.0, letters.1) as usize;
            field::prefixed(stream, prefix, count, out);
        } else {
            field::random_text(stream, low, high, out);
        }
    }

    /// What fills the long texts.
    fn filler(&self) -> field::Filler {
        let one_letter = self.deviations.has(Deviation::OneLetterFiller);
        if one_letter { field::Filler::OneLetter } else { field::Filler::Random }
    }

    /// NURand's constant C that made the last names.
    #[must_use]
    pub fn c_load(&self) -> u32 {
        self.c_load
    }

    /// Rows of `table`: exact but for `order_line`, whose number is drawn (about 300 000 per warehouse).
    #[must_use]
    pub fn rows_estimated(&self, table: Table) -> u64 {
        let per_warehouse = match table {
            Table::Item => return u64::from(ITEMS),
            Table::OrderLine => DISTRICTS * CUSTOMERS * 10,
            Table::Stock => ITEMS,
            Table::Customer | Table::History | Table::Orders => DISTRICTS * CUSTOMERS,
            Table::NewOrder => DISTRICTS * (CUSTOMERS - DELIVERED),
            Table::District => DISTRICTS,
            Table::Warehouse => 1,
        };
        u64::from(per_warehouse) * u64::from(self.warehouses)
    }

    /// How many groups `table` is cut into.
    #[must_use]
    pub fn groups(&self, table: Table) -> u64 {
        let per_warehouse = cut(table).groups;
        if table == Table::Item { per_warehouse } else { per_warehouse * u64::from(self.warehouses) }
    }

    /// Appends the rows of one group (0..[`Self::groups`]) to `out` as COPY BINARY tuples; returns how many.
    pub fn append_group(&self, table: Table, group: u64, out: &mut Vec<u8>) -> u64 {
        let Cut { groups, keys } = cut(table);
        let warehouse = (group / groups) as u32 + 1;
        let place = (group % groups) as u32;
        let first = place * keys + 1;
        // For tables below a district, the keys count the customers or orders of all districts in turn.
        let district = (first - 1) / CUSTOMERS + 1;
        let in_district = (first - 1) % CUSTOMERS + 1;
        let range = in_district..in_district + keys;
        match table {
            Table::Item => item::append_items(self, first..first + keys, out),
            Table::Stock => item::append_stock(self, warehouse, first..first + keys, out),
            Table::Warehouse => warehouse::append_warehouse(self, warehouse, out),
            Table::District => warehouse::append_districts(self, warehouse, out),
            Table::Customer => customer::append_customers(self, warehouse, district, range, out),
            Table::History => customer::append_history(self, warehouse, district, range, out),
            Table::Orders => orders::append_orders(self, warehouse, district, out),
            Table::OrderLine => orders::append_order_lines(self, warehouse, district, range, out),
            Table::NewOrder => orders::append_new_orders(self, warehouse, place + 1, out),
        }
    }
}

fn cut(table: Table) -> Cut {
    let (groups, keys) = match table {
        Table::Item => (100, 1000),
        Table::Stock => (400, 250),
        Table::Customer => (200, 150),
        Table::History => (30, 1000),
        Table::Orders => (10, 3000),
        Table::OrderLine => (300, 100),
        Table::NewOrder => (10, 900),
        Table::District => (1, 10),
        Table::Warehouse => (1, 1),
    };
    Cut { groups, keys }
}

#[cfg(test)]
mod tests;
