//! The initial population (clause 4.3.3): the rows of every table as a pure function of the seed.
//!
//! A table is cut into groups of consecutive rows in primary-key order. A group is a function of (seed, table,
//! group), whoever makes it and when, so the same seed gives the same bytes whatever the parallelism. Rows
//! are written as COPY BINARY tuples; nothing is allocated per row. No sockets and no SQL here.

mod field;
#[cfg(test)]
mod tests;

use std::ops::Range;

use pgwire::copy;

use super::deviation::{Deviation, Deviations};
use super::random::{self, A_C_LAST, LAST_NAME_BYTES_MAX, Purpose, Stream, last_name};

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
    pub fn new(seed: u64, warehouses: u32, deviations: Deviations) -> Self {
        let is_constant = deviations.has(Deviation::ConstantC);
        let c_load = if is_constant { random::C_LAST_CONSTANT } else { random::c_load(seed) };
        Self { seed, warehouses, c_load, deviations }
    }

    /// The population of one of several sets of tables, from 1, which share the constant of the last names.
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
    pub fn c_load(&self) -> u32 {
        self.c_load
    }

    /// Rows of `table`: exact but for `order_line`, whose number is drawn (about 300 000 per warehouse).
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
    pub fn groups(&self, table: Table) -> u64 {
        let per_warehouse = cut(table).0;
        if table == Table::Item { per_warehouse } else { per_warehouse * u64::from(self.warehouses) }
    }

    /// Appends the rows of one group (0..[`Self::groups`]) to `out` as COPY BINARY tuples; returns how many.
    pub fn append_group(&self, table: Table, group: u64, out: &mut Vec<u8>) -> u64 {
        let (groups, keys) = cut(table);
        let warehouse = (group / groups) as u32 + 1;
        let place = (group % groups) as u32;
        let first = place * keys + 1;
        // For tables below a district, the keys count the customers or orders of all districts in turn.
        let district = (first - 1) / CUSTOMERS + 1;
        let in_district = (first - 1) % CUSTOMERS + 1;
        let keys_of = |first: u32| Keys { warehouse, district, range: first..first + keys };
        match table {
            Table::Item => self.append_items(first..first + keys, out),
            Table::Stock => self.append_stock(&keys_of(first), out),
            Table::Warehouse => self.append_warehouse(warehouse, out),
            Table::District => self.append_districts(warehouse, out),
            Table::Customer => self.append_customers(&keys_of(in_district), out),
            Table::History => self.append_history(&keys_of(in_district), out),
            Table::Orders => self.append_orders(&keys_of(in_district), out),
            Table::OrderLine => return self.append_order_lines(&keys_of(in_district), out),
            Table::NewOrder => self.append_new_orders(warehouse, place + 1, out),
        }
        u64::from(keys)
    }

    /// The random numbers of a row.
    fn stream<const N: usize>(&self, purpose: Purpose, ids: [u32; N]) -> Stream {
        Stream::new(self.seed, purpose, &ids.map(u64::from))
    }
}

/// The keys of a group within a warehouse.
struct Keys {
    warehouse: u32,
    district: u32,
    range: Range<u32>,
}

/// How a table is cut: so many groups for each warehouse (for all of them: `item`), so many keys in each.
/// A group is some 64 to 200 kB, which is what one flush hands to the socket.
fn cut(table: Table) -> (u64, u32) {
    match table {
        Table::Item => (100, 1000),
        Table::Stock => (400, 250),
        Table::Customer => (200, 150),
        Table::History => (30, 1000),
        Table::Orders => (10, 3000),
        Table::OrderLine => (300, 100),
        Table::NewOrder => (10, 900),
        Table::District => (1, 10),
        Table::Warehouse => (1, 1),
    }
}

/// Customers 1..=1000 of a district bear the thousand names in order, so that each exists.
const NAMED_IN_ORDER: u32 = 1000;

impl Population {
    fn append_customers(&self, keys: &Keys, out: &mut Vec<u8>) {
        let &Keys { warehouse, district, .. } = keys;
        let bad_credit_one_in = if self.deviations.has(Deviation::HalfBadCredit) { 2 } else { 10 };
        for customer in keys.range.clone() {
            let stream = &mut self.stream(Purpose::Customer, [warehouse, district, customer]);
            copy::row(out, 21);
            copy::timestamptz(out, POPULATED_AT_US);
            copy::int4(out, customer as i32);
            self.append_warehouse_id(warehouse, out);
            copy::int2(out, district as i16);
            copy::int2(out, 1);
            copy::int2(out, 0);
            self.append_name(stream, (8, 16), b"first-", (2, 10), out);
            copy::text(out, b"OE");
            let mut name = [0; LAST_NAME_BYTES_MAX];
            let length = last_name(self.name_number(stream, customer), &mut name);
            copy::text(out, &name[..length]);
            self.append_address(stream, out);
            field::random_digits(stream, 16, out);
            copy::text(out, if stream.one_in(bad_credit_one_in) { b"BC" } else { b"GC" });
            if self.is_sysbench() {
                copy::int8(out, 50_000);
            } else {
                copy::numeric(out, 50_000 * 100, 2);
            }
            copy::numeric(out, i64::from(stream.uniform(0, 5000)), 4);
            copy::numeric(out, -10 * 100, 2);
            copy::numeric(out, 10 * 100, 2);
            field::filler(stream, self.filler(), 300, 500, out);
        }
    }

    fn name_number(&self, stream: &mut Stream, customer: u32) -> u32 {
        if customer <= NAMED_IN_ORDER {
            return customer - 1;
        }
        // sysbench-tpcc draws the constant anew in the load, too.
        let c = if self.is_sysbench() { stream.uniform(0, A_C_LAST) } else { self.c_load };
        stream.nurand(A_C_LAST, c, 0, 999)
    }

    /// One payment of each customer, in the customers' order: the table has no key.
    fn append_history(&self, keys: &Keys, out: &mut Vec<u8>) {
        let &Keys { warehouse, district, .. } = keys;
        for customer in keys.range.clone() {
            let stream = &mut self.stream(Purpose::History, [warehouse, district, customer]);
            copy::row(out, 8);
            copy::timestamptz(out, POPULATED_AT_US);
            copy::int4(out, customer as i32);
            self.append_warehouse_id(warehouse, out);
            self.append_warehouse_id(warehouse, out);
            copy::int2(out, district as i16);
            copy::int2(out, district as i16);
            copy::numeric(out, 10 * 100, 2);
            field::filler(stream, self.filler(), 12, 24, out);
        }
    }

    fn append_items(&self, items: Range<u32>, out: &mut Vec<u8>) {
        for item in items {
            let stream = &mut self.stream(Purpose::Item, [item]);
            copy::row(out, 5);
            copy::int4(out, item as i32);
            let image = stream.uniform(1, 10_000);
            copy::int4(out, image as i32);
            if self.is_sysbench() {
                append_texts_of_sysbench(stream, image, out);
                continue;
            }
            field::random_text(stream, 14, 24, out);
            copy::numeric(out, i64::from(stream.uniform(100, 10_000)), 2);
            field::data(stream, out);
        }
    }

    fn append_stock(&self, keys: &Keys, out: &mut Vec<u8>) {
        let (warehouse, filler) = (keys.warehouse, self.filler());
        for item in keys.range.clone() {
            let stream = &mut self.stream(Purpose::Stock, [warehouse, item]);
            copy::row(out, 17);
            copy::int4(out, item as i32);
            self.append_warehouse_id(warehouse, out);
            if self.is_sysbench() {
                copy::numeric(out, 0, 0);
            } else {
                copy::int4(out, 0);
            }
            copy::int2(out, stream.uniform(10, 100) as i16);
            copy::int2(out, 0);
            copy::int2(out, 0);
            for _ in 0..10 {
                field::filler(stream, filler, 24, 24, out);
            }
            match filler {
                field::Filler::Random => field::data(stream, out),
                field::Filler::OneLetter => field::filler(stream, filler, 26, 50, out),
            }
        }
    }

    /// All orders of a district: their customers are one permutation.
    fn append_orders(&self, keys: &Keys, out: &mut Vec<u8>) {
        let &Keys { warehouse, district, .. } = keys;
        // sysbench-tpcc has one permutation for all districts.
        let permuted = if self.is_sysbench() { 1 } else { district };
        let mut customers = [0; CUSTOMERS as usize];
        let stream = &mut self.stream(Purpose::OrderCustomers, [warehouse, permuted]);
        stream.permutation(&mut customers);
        if self.deviations.has(Deviation::RepeatedOrderCustomers) {
            // A permutation by swaps with a later place, of which the half that writes the later place is lost.
            (1..)
                .zip(&mut customers)
                .for_each(|(order, customer)| *customer = stream.uniform(order, CUSTOMERS));
        }
        for (order, customer) in (1..=CUSTOMERS).zip(customers) {
            let stream = &mut self.stream(Purpose::Order, [warehouse, district, order]);
            let lines = line_count(stream);
            copy::row(out, 8);
            copy::timestamptz(out, POPULATED_AT_US);
            copy::int4(out, order as i32);
            self.append_warehouse_id(warehouse, out);
            copy::int4(out, customer as i32);
            copy::int2(out, district as i16);
            if order <= DELIVERED {
                copy::int2(out, stream.uniform(1, 10) as i16);
            } else {
                copy::null(out);
            }
            copy::int2(out, lines as i16);
            copy::int2(out, 1);
        }
    }

    /// Their number is drawn.
    fn append_order_lines(&self, keys: &Keys, out: &mut Vec<u8>) -> u64 {
        let &Keys { warehouse, district, .. } = keys;
        let (mut rows, filler) = (0, self.filler());
        let is_reversed = self.deviations.has(Deviation::ReversedAmounts);
        for order in keys.range.clone() {
            let ids = [warehouse, district, order];
            let lines = line_count(&mut self.stream(Purpose::Order, ids));
            let stream = &mut self.stream(Purpose::OrderLines, ids);
            let delivered = order <= DELIVERED;
            for line in 1..=lines {
                copy::row(out, 10);
                if delivered {
                    copy::timestamptz(out, POPULATED_AT_US);
                } else {
                    copy::null(out);
                }
                copy::int4(out, order as i32);
                self.append_warehouse_id(warehouse, out);
                copy::int4(out, stream.uniform(1, ITEMS) as i32);
                self.append_warehouse_id(warehouse, out);
                copy::int2(out, district as i16);
                copy::int2(out, line as i16);
                copy::int2(out, 5);
                copy::numeric(out, amount_cents(stream, delivered, is_reversed), 2);
                field::filler(stream, filler, 24, 24, out);
            }
            rows += u64::from(lines);
        }
        rows
    }

    fn append_new_orders(&self, warehouse: u32, district: u32, out: &mut Vec<u8>) {
        for order in DELIVERED + 1..=CUSTOMERS {
            copy::row(out, 3);
            self.append_warehouse_id(warehouse, out);
            copy::int4(out, order as i32);
            copy::int2(out, district as i16);
        }
    }

    fn append_warehouse(&self, warehouse: u32, out: &mut Vec<u8>) {
        let stream = &mut self.stream(Purpose::Warehouse, [warehouse]);
        copy::row(out, 9);
        self.append_warehouse_id(warehouse, out);
        self.append_name(stream, (6, 10), b"name-", (5, 5), out);
        self.append_address(stream, out);
        copy::numeric(out, i64::from(stream.uniform(0, 2000)), 4);
        copy::numeric(out, 300_000 * 100, 2);
    }

    fn append_districts(&self, warehouse: u32, out: &mut Vec<u8>) {
        for district in 1..=DISTRICTS {
            let stream = &mut self.stream(Purpose::District, [warehouse, district]);
            copy::row(out, 11);
            self.append_warehouse_id(warehouse, out);
            copy::int4(out, CUSTOMERS as i32 + 1);
            copy::int2(out, district as i16);
            copy::numeric(out, 30_000 * 100, 2);
            copy::numeric(out, i64::from(stream.uniform(0, 2000)), 4);
            self.append_name(stream, (6, 10), b"name-", (5, 5), out);
            self.append_address(stream, out);
        }
    }
}

/// Name, price and data of an item of sysbench-tpcc, whose texts begin with numbers of the row.
fn append_texts_of_sysbench(stream: &mut Stream, image: u32, out: &mut Vec<u8>) {
    let mut letters = [0; 10];
    field::letters(stream, &mut letters);
    let (of_name, of_data) = letters.split_at(5);
    let (of_name, of_data) = (String::from_utf8_lossy(of_name), String::from_utf8_lossy(of_data));
    let cents = i64::from(stream.uniform(100, 10_100));
    let name = format!("item-{image}-{}.{:02}0000-{of_name}", cents / 100, cents % 100);
    let data = format!("data-{name}-{of_data}");
    copy::text(out, &name.as_bytes()[..name.len().min(24)]);
    copy::numeric(out, cents, 2);
    copy::text(out, &data.as_bytes()[..data.len().min(50)]);
}

/// What `orders` and `order_line` must agree on: drawn first from the order's own stream.
fn line_count(stream: &mut Stream) -> u32 {
    stream.uniform(5, 15)
}

/// `OL_AMOUNT`: nothing for delivered lines (clause 4.3.3.1), or the reverse with amounts of 0.10..=100.00.
fn amount_cents(stream: &mut Stream, delivered: bool, is_reversed: bool) -> i64 {
    match (delivered, is_reversed) {
        (false, false) => i64::from(stream.uniform(1, 999_999)),
        (true, true) => i64::from(stream.uniform(10, 10_000)),
        _ => 0,
    }
}
