//! Rows of `orders`, `order_line` and `new_order`.

use std::ops::Range;

use super::super::deviation::Deviation;
use super::super::random::{Purpose, Stream};
use super::{CUSTOMERS, DELIVERED, ITEMS, POPULATED_AT_US, Population, field};
use pgwire::copy;

/// What `orders` and `order_line` must agree on: drawn first from the order's own stream.
fn line_count(stream: &mut Stream) -> u32 {
    stream.uniform(5, 15)
}

fn order_stream(seed: u64, warehouse: u32, district: u32, order: u32) -> Stream {
    Stream::new(seed, Purpose::Order, &[warehouse, district, order].map(u64::from))
}

/// All orders of a district: their customers are one permutation.
pub fn append_orders(population: &Population, warehouse: u32, district: u32, out: &mut Vec<u8>) -> u64 {
    let seed = population.seed;
    // sysbench-tpcc has one permutation for all districts.
    let permuted = if population.is_sysbench() { 1 } else { district };
    let ids = [warehouse, permuted].map(u64::from);
    let mut customers = [0; CUSTOMERS as usize];
    Stream::new(seed, Purpose::OrderCustomers, &ids).permutation(&mut customers);
    for (order, customer) in (1..=CUSTOMERS).zip(customers) {
        let stream = &mut order_stream(seed, warehouse, district, order);
        let lines = line_count(stream);
        copy::row(out, 8);
        copy::timestamptz(out, POPULATED_AT_US);
        copy::int4(out, order as i32);
        population.append_warehouse_id(warehouse, out);
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
    u64::from(CUSTOMERS)
}

pub fn append_order_lines(
    population: &Population,
    warehouse: u32,
    district: u32,
    orders: Range<u32>,
    out: &mut Vec<u8>,
) -> u64 {
    let mut rows = 0;
    let (seed, filler) = (population.seed, population.filler());
    let is_reversed = population.deviations.has(Deviation::ReversedAmounts);
    for order in orders {
        let lines = line_count(&mut order_stream(seed, warehouse, district, order));
        let ids = [warehouse, district, order].map(u64::from);
        let stream = &mut Stream::new(seed, Purpose::OrderLines, &ids);
        let delivered = order <= DELIVERED;
        for line in 1..=lines {
            copy::row(out, 10);
            if delivered {
                copy::timestamptz(out, POPULATED_AT_US);
            } else {
                copy::null(out);
            }
            copy::int4(out, order as i32);
            population.append_warehouse_id(warehouse, out);
            copy::int4(out, stream.uniform(1, ITEMS) as i32);
            population.append_warehouse_id(warehouse, out);
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

/// `OL_AMOUNT`: nothing for delivered lines (clause 4.3.3.1), or the reverse with amounts of 0.10..=100.00.
fn amount_cents(stream: &mut Stream, delivered: bool, is_reversed: bool) -> i64 {
    match (delivered, is_reversed) {
        (false, false) => i64::from(stream.uniform(1, 999_999)),
        (true, true) => i64::from(stream.uniform(10, 10_000)),
        _ => 0,
    }
}

pub fn append_new_orders(population: &Population, warehouse: u32, district: u32, out: &mut Vec<u8>) -> u64 {
    for order in DELIVERED + 1..=CUSTOMERS {
        copy::row(out, 3);
        population.append_warehouse_id(warehouse, out);
        copy::int4(out, order as i32);
        copy::int2(out, district as i16);
    }
    u64::from(CUSTOMERS - DELIVERED)
}
