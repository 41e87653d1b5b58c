//! Rows of `warehouse` and `district`.

use super::super::random::{Purpose, Stream};
use super::{CUSTOMERS, DISTRICTS, Population};
use pgwire::copy;

pub fn append_warehouse(population: &Population, warehouse: u32, out: &mut Vec<u8>) -> u64 {
    let stream = &mut Stream::new(population.seed, Purpose::Warehouse, &[u64::from(warehouse)]);
    copy::row(out, 9);
    population.append_warehouse_id(warehouse, out);
    population.append_name(stream, (6, 10), b"name-", (5, 5), out);
    population.append_address(stream, out);
    copy::numeric(out, i64::from(stream.uniform(0, 2000)), 4);
    copy::numeric(out, 300_000 * 100, 2);
    1
}

pub fn append_districts(population: &Population, warehouse: u32, out: &mut Vec<u8>) -> u64 {
    for district in 1..=DISTRICTS {
        let ids = [warehouse, district].map(u64::from);
        let stream = &mut Stream::new(population.seed, Purpose::District, &ids);
        copy::row(out, 11);
        population.append_warehouse_id(warehouse, out);
        copy::int4(out, CUSTOMERS as i32 + 1);
        copy::int2(out, district as i16);
        copy::numeric(out, 30_000 * 100, 2);
        copy::numeric(out, i64::from(stream.uniform(0, 2000)), 4);
        population.append_name(stream, (6, 10), b"name-", (5, 5), out);
        population.append_address(stream, out);
    }
    u64::from(DISTRICTS)
}
