//! Rows of `item` and `stock`.

use std::ops::Range;

use super::super::random::{Purpose, Stream};
use super::{Population, field};
use pgwire::copy;

pub fn append_items(seed: u64, items: Range<u32>, out: &mut Vec<u8>) -> u64 {
    let rows = items.len() as u64;
    for item in items {
        let stream = &mut Stream::new(seed, Purpose::Item, &[u64::from(item)]);
        copy::row(out, 5);
        copy::int4(out, item as i32);
        copy::int4(out, stream.uniform(1, 10_000) as i32);
        field::random_text(stream, 14, 24, out);
        copy::numeric(out, i64::from(stream.uniform(100, 10_000)), 2);
        field::data(stream, out);
    }
    rows
}

pub fn append_stock(population: &Population, warehouse: u32, items: Range<u32>, out: &mut Vec<u8>) -> u64 {
    let (rows, filler) = (items.len() as u64, population.filler());
    for item in items {
        let stream =
            &mut Stream::new(population.seed, Purpose::Stock, &[u64::from(warehouse), u64::from(item)]);
        copy::row(out, 17);
        copy::int4(out, item as i32);
        copy::int4(out, warehouse as i32);
        copy::int4(out, 0);
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
    rows
}
