//! Rows of `customer` and `history`.

use std::ops::Range;

use super::super::deviation::Deviation;
use super::super::random::{A_C_LAST, LAST_NAME_BYTES_MAX, Purpose, Stream, last_name};
use super::{POPULATED_AT_US, Population, field};
use pgwire::copy;

/// Customers 1..=1000 of a district bear the thousand names in order, so that each exists.
const NAMED_IN_ORDER: u32 = 1000;

pub fn append_customers(
    population: &Population,
    warehouse: u32,
    district: u32,
    customers: Range<u32>,
    out: &mut Vec<u8>,
) -> u64 {
    let rows = customers.len() as u64;
    let bad_credit_one_in = if population.deviations.has(Deviation::HalfBadCredit) { 2 } else { 10 };
    for customer in customers {
        let ids = [warehouse, district, customer].map(u64::from);
        let stream = &mut Stream::new(population.seed, Purpose::Customer, &ids);
        copy::row(out, 21);
        copy::timestamptz(out, POPULATED_AT_US);
        copy::int4(out, customer as i32);
        population.append_warehouse_id(warehouse, out);
        copy::int2(out, district as i16);
        copy::int2(out, 1);
        copy::int2(out, 0);
        population.append_name(stream, (8, 16), b"first-", (2, 10), out);
        copy::text(out, b"OE");
        let mut name = [0; LAST_NAME_BYTES_MAX];
        let length = last_name(name_number(stream, population, customer), &mut name);
        copy::text(out, &name[..length]);
        population.append_address(stream, out);
        field::random_digits(stream, 16, out);
        copy::text(out, if stream.one_in(bad_credit_one_in) { b"BC" } else { b"GC" });
        if population.is_sysbench() {
            copy::int8(out, 50_000);
        } else {
            copy::numeric(out, 50_000 * 100, 2);
        }
        copy::numeric(out, i64::from(stream.uniform(0, 5000)), 4);
        copy::numeric(out, -10 * 100, 2);
        copy::numeric(out, 10 * 100, 2);
        field::filler(stream, population.filler(), 300, 500, out);
    }
    rows
}

fn name_number(stream: &mut Stream, population: &Population, customer: u32) -> u32 {
    if customer <= NAMED_IN_ORDER {
        return customer - 1;
    }
    // sysbench-tpcc draws the constant anew in the load, too.
    let c = if population.is_sysbench() { stream.uniform(0, A_C_LAST) } else { population.c_load };
    stream.nurand(A_C_LAST, c, 0, 999)
}

/// One payment of each customer, in the customers' order: the table has no key.
pub fn append_history(
    population: &Population,
    warehouse: u32,
    district: u32,
    customers: Range<u32>,
    out: &mut Vec<u8>,
) -> u64 {
    let rows = customers.len() as u64;
    for customer in customers {
        let ids = [warehouse, district, customer].map(u64::from);
        let stream = &mut Stream::new(population.seed, Purpose::History, &ids);
        copy::row(out, 8);
        copy::timestamptz(out, POPULATED_AT_US);
        copy::int4(out, customer as i32);
        population.append_warehouse_id(warehouse, out);
        population.append_warehouse_id(warehouse, out);
        copy::int2(out, district as i16);
        copy::int2(out, district as i16);
        copy::numeric(out, 10 * 100, 2);
        field::filler(stream, population.filler(), 12, 24, out);
    }
    rows
}
