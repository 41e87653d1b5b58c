//! Rows of `warehouse` and `district`.

use super::super::random::{Purpose, Stream};
use super::{CUSTOMERS, DISTRICTS, field};
use pgwire::copy;

pub fn append_warehouse(seed: u64, warehouse: u32, out: &mut Vec<u8>) -> u64 {
    let stream = &mut Stream::new(seed, Purpose::Warehouse, &[u64::from(warehouse)]);
    copy::row(out, 9);
    copy::int4(out, warehouse as i32);
    field::random_text(stream, 6, 10, out);
    field::address(stream, out);
    copy::numeric(out, i64::from(stream.uniform(0, 2000)), 4);
    copy::numeric(out, 300_000 * 100, 2);
    1
}

pub fn append_districts(seed: u64, warehouse: u32, out: &mut Vec<u8>) -> u64 {
    for district in 1..=DISTRICTS {
        let stream = &mut Stream::new(seed, Purpose::District, &[u64::from(warehouse), u64::from(district)]);
        copy::row(out, 11);
        copy::int4(out, warehouse as i32);
        copy::int4(out, CUSTOMERS as i32 + 1);
        copy::int2(out, district as i16);
        copy::numeric(out, 30_000 * 100, 2);
        copy::numeric(out, i64::from(stream.uniform(0, 2000)), 4);
        field::random_text(stream, 6, 10, out);
        field::address(stream, out);
    }
    u64::from(DISTRICTS)
}
