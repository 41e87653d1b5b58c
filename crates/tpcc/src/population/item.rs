//! Rows of `item` and `stock`.

use std::ops::Range;

use super::super::random::{Purpose, Stream};
use super::{Population, field};
use pgwire::copy;

pub fn append_items(population: &Population, items: Range<u32>, out: &mut Vec<u8>) -> u64 {
    let rows = items.len() as u64;
    for item in items {
        let stream = &mut Stream::new(population.seed, Purpose::Item, &[u64::from(item)]);
        copy::row(out, 5);
        copy::int4(out, item as i32);
        let image = stream.uniform(1, 10_000);
        copy::int4(out, image as i32);
        if population.is_sysbench() {
            append_texts_of_sysbench(stream, image, out);
            continue;
        }
        field::random_text(stream, 14, 24, out);
        copy::numeric(out, i64::from(stream.uniform(100, 10_000)), 2);
        field::data(stream, out);
    }
    rows
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

pub fn append_stock(population: &Population, warehouse: u32, items: Range<u32>, out: &mut Vec<u8>) -> u64 {
    let (rows, filler) = (items.len() as u64, population.filler());
    for item in items {
        let stream =
            &mut Stream::new(population.seed, Purpose::Stock, &[u64::from(warehouse), u64::from(item)]);
        copy::row(out, 17);
        copy::int4(out, item as i32);
        population.append_warehouse_id(warehouse, out);
        if population.is_sysbench() {
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
    rows
}
