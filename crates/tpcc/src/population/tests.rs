use super::*;
use pgwire::numeric;
use std::collections::HashMap;

/// Splits COPY BINARY tuples into their columns; `None` is NULL.
fn tuples(mut bytes: &[u8]) -> Vec<Vec<Option<Vec<u8>>>> {
    let mut take = |n: usize| {
        let (head, rest) = bytes.split_at(n);
        bytes = rest;
        (head.to_vec(), rest.is_empty())
    };
    let mut rows = Vec::new();
    loop {
        let (count, _) = take(2);
        let mut at_end = false;
        let row = (0..u16::from_be_bytes([count[0], count[1]]))
            .map(|_| {
                let (length, end) = take(4);
                at_end = end;
                let length = i32::from_be_bytes(length.try_into().expect("four bytes"));
                (length >= 0).then(|| {
                    let (value, end) = take(length as usize);
                    at_end = end;
                    value
                })
            })
            .collect();
        rows.push(row);
        if at_end {
            return rows;
        }
    }
}

/// All rows of the groups of `table` that belong to the first `share` of warehouse 1.
fn rows(table: Table, groups: u64) -> Vec<Vec<Option<Vec<u8>>>> {
    let mut out = Vec::new();
    let population = Population::new(7, 2, Deviations::NONE);
    let count: u64 = (0..groups).map(|group| population.append_group(table, group, &mut out)).sum();
    let rows = tuples(&out);
    assert_eq!(rows.len() as u64, count, "append_group tells how many rows it wrote");
    rows
}

fn int(column: Option<&Vec<u8>>) -> i64 {
    let bytes = column.expect("not null");
    bytes.iter().fold(0, |value, &byte| value << 8 | i64::from(byte))
}

fn at(row: &[Option<Vec<u8>>], column: usize) -> i64 {
    int(row[column].as_ref())
}

fn cents(row: &[Option<Vec<u8>>], column: usize) -> i64 {
    numeric::read(row[column].as_ref().expect("not null"), 2).expect("a numeric of two decimals")
}

fn text(row: &[Option<Vec<u8>>], column: usize) -> &str {
    std::str::from_utf8(row[column].as_ref().expect("not null")).expect("ASCII")
}

/// Whether `count` of `n` is what chance allows for a share of one in ten (5 sigma).
fn about_a_tenth(count: usize, n: usize) -> bool {
    let expected = n as f64 / 10.0;
    (count as f64 - expected).abs() < 5.0 * (expected * 0.9).sqrt()
}

#[test]
fn the_order_of_generation_changes_no_byte() {
    let population = Population::new(3, 2, Deviations::NONE);
    for table in TABLES {
        let groups = population.groups(table);
        let chosen = [0, groups / 2, groups - 1];
        let make = |group| {
            let mut out = Vec::new();
            population.append_group(table, group, &mut out);
            out
        };
        let forward: Vec<_> = chosen.iter().map(|&group| make(group)).collect();
        let mut backward: Vec<_> = chosen.iter().rev().map(|&group| make(group)).collect();
        backward.reverse();
        assert!(forward == backward, "{table:?}");
    }
}

#[test]
fn another_seed_makes_other_rows() {
    for table in [Table::Item, Table::Stock, Table::Customer, Table::History, Table::Orders, Table::OrderLine]
    {
        let make = |seed| {
            let mut out = Vec::new();
            Population::new(seed, 1, Deviations::NONE).append_group(table, 0, &mut out);
            out
        };
        assert!(make(1) != make(2), "{table:?}");
    }
}

#[test]
fn a_smaller_dataset_is_the_beginning_of_a_larger_one() {
    let (mut small, mut large) = (Vec::new(), Vec::new());
    Population::new(5, 1, Deviations::NONE).append_group(Table::Stock, 399, &mut small);
    Population::new(5, 9, Deviations::NONE).append_group(Table::Stock, 399, &mut large);
    assert!(small == large);
}

#[test]
fn the_bytes_of_population_1_never_change() {
    // FNV-1a over the first and last group of each table. A difference is a new format: raise POPULATION.
    let population = Population::new(2026, 2, Deviations::NONE);
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for table in TABLES {
        let mut out = Vec::new();
        for group in [0, population.groups(table) - 1] {
            population.append_group(table, group, &mut out);
        }
        for byte in out {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    assert_eq!(hash, GOLDEN, "the population's bytes changed");
}

const GOLDEN: u64 = 16_790_289_362_802_593_180;

#[test]
fn tables_have_the_rows_that_the_specification_wants() {
    let population = Population::new(1, 2, Deviations::NONE);
    for (table, expected) in [
        (Table::Item, 100_000),
        (Table::Warehouse, 2),
        (Table::District, 20),
        (Table::History, 60_000),
        (Table::Orders, 60_000),
        (Table::NewOrder, 18_000),
    ] {
        let mut out = Vec::new();
        let count: u64 = (0..population.groups(table))
            .map(|group| {
                out.clear();
                population.append_group(table, group, &mut out)
            })
            .sum();
        assert_eq!(count, expected, "{table:?}");
        assert_eq!(population.rows_estimated(table), expected, "{table:?}");
    }
    for (table, expected) in [(Table::Stock, 200_000), (Table::Customer, 60_000)] {
        assert_eq!(population.groups(table) * u64::from(cut(table).1), expected, "{table:?}");
    }
}

#[test]
fn keys_are_unique_and_in_order_within_and_across_groups_and_districts() {
    let cases: [(Table, &[usize], u64); 6] = [
        (Table::Stock, &[1, 0], 3),
        (Table::Customer, &[2, 3, 1], 41),
        (Table::Orders, &[2, 4, 1], 11),
        (Table::OrderLine, &[2, 5, 1, 6], 31),
        (Table::NewOrder, &[0, 2, 1], 11),
        (Table::District, &[0, 2], 2),
    ];
    for (table, key, groups) in cases {
        let keys: Vec<Vec<i64>> = rows(table, groups)
            .iter()
            .map(|row| key.iter().map(|&column| at(row, column)).collect())
            .collect();
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "{table:?}");
        let first_order = if table == Table::NewOrder { 2101 } else { 1 };
        let begin = &[1, 1, first_order, 1][..key.len()];
        assert_eq!(keys[0], begin, "{table:?}");
    }
}

#[test]
fn a_district_s_orders_are_consistent_with_their_lines_and_customers() {
    let orders = rows(Table::Orders, 1);
    let lines = rows(Table::OrderLine, 30);
    let mut line_counts: HashMap<i64, i64> = HashMap::new();
    for line in &lines {
        let (order, delivered) = (at(line, 1), at(line, 1) <= 2100);
        *line_counts.entry(order).or_default() += 1;
        assert_eq!(line[0].is_some(), delivered, "order {order}: delivery date");
        assert_eq!(cents(line, 8) == 0, delivered, "order {order}: amount {}", cents(line, 8));
        assert!((1..=100_000).contains(&at(line, 3)) && at(line, 7) == 5 && text(line, 9).len() == 24);
    }
    let mut customers = Vec::new();
    for order in &orders {
        assert_eq!(at(order, 6), line_counts[&at(order, 1)], "condition 6");
        assert!((5..=15).contains(&at(order, 6)));
        assert_eq!(order[5].is_some(), at(order, 1) <= 2100, "condition 5");
        customers.push(at(order, 3));
    }
    customers.sort_unstable();
    assert!(customers.into_iter().eq(1..=3000), "the orders' customers are a permutation");
}

#[test]
fn money_adds_up_from_the_beginning() {
    // Conditions 1, 8, 9, 10 and 12 for one warehouse.
    let district_ytd: i64 = rows(Table::District, 1).iter().map(|row| cents(row, 3)).sum();
    let warehouse_ytd: i64 = rows(Table::Warehouse, 1).iter().map(|row| cents(row, 8)).sum();
    let paid: i64 = rows(Table::History, 30).iter().map(|row| cents(row, 6)).sum();
    assert_eq!((district_ytd, paid), (warehouse_ytd, warehouse_ytd));
    for customer in rows(Table::Customer, 2) {
        assert_eq!((cents(&customer, 18), cents(&customer, 19)), (-1000, 1000));
        assert_eq!((at(&customer, 4), at(&customer, 5)), (1, 0));
    }
}

#[test]
fn texts_have_their_lengths_and_shares() {
    let customers = rows(Table::Customer, 60);
    let bad = customers.iter().filter(|row| text(row, 15) == "BC").count();
    assert!(about_a_tenth(bad, customers.len()), "{bad} of {} have bad credit", customers.len());
    for row in &customers {
        assert!((8..=16).contains(&text(row, 6).len()) && text(row, 7) == "OE");
        assert!((10..=20).contains(&text(row, 9).len()) && text(row, 12).len() == 2);
        assert!(text(row, 13).len() == 9 && text(row, 13).ends_with("11111"));
        assert!(text(row, 14).len() == 16 && text(row, 14).bytes().all(|c| c.is_ascii_digit()));
        assert!((300..=500).contains(&text(row, 20).len()));
    }
    for (table, groups, column) in [(Table::Stock, 40, 16), (Table::Item, 10, 4)] {
        let rows = rows(table, groups);
        let original = rows.iter().filter(|row| text(row, column).contains("ORIGINAL")).count();
        assert!(about_a_tenth(original, rows.len()), "{original} of {} {table:?} are original", rows.len());
        assert!(rows.iter().all(|row| (26..=50).contains(&text(row, column).len())), "{table:?}");
    }
}

#[test]
fn the_first_thousand_customers_of_a_district_bear_all_the_names() {
    let customers = rows(Table::Customer, 20);
    let first: std::collections::HashSet<_> = customers[..1000].iter().map(|row| text(row, 8)).collect();
    assert_eq!(first.len(), 1000);
    assert_eq!(text(&customers[371], 8), "PRICALLYOUGHT");
    // NURand crowds the rest: the commonest name of 2000 comes far oftener than twice.
    let mut counts: HashMap<&str, u32> = HashMap::new();
    for row in &customers[1000..] {
        *counts.entry(text(row, 8)).or_default() += 1;
    }
    assert!(counts.values().max() >= Some(&8));
}

/// The rows of one group with deviations.
fn rows_with(table: Table, group: u64, deviations: &[Deviation]) -> Vec<Vec<Option<Vec<u8>>>> {
    let mut out = Vec::new();
    Population::new(7, 2, deviations.iter().copied().collect()).append_group(table, group, &mut out);
    tuples(&out)
}

#[test]
fn half_of_the_customers_can_have_bad_credit() {
    let rows: Vec<_> =
        (0..20).flat_map(|group| rows_with(Table::Customer, group, &[Deviation::HalfBadCredit])).collect();
    let bad = rows.iter().filter(|row| text(row, 15) == "BC").count();
    assert!((1350..1650).contains(&bad), "{bad} of {}", rows.len());
}

#[test]
fn amounts_can_be_of_delivered_lines_instead_of_the_others() {
    let with = [Deviation::ReversedAmounts];
    for row in rows_with(Table::OrderLine, 0, &with).iter().chain(&rows_with(Table::OrderLine, 29, &with)) {
        assert_eq!(cents(row, 8) > 0, row[0].is_some());
        assert!(cents(row, 8) <= 10_000);
    }
}

#[test]
fn filler_can_be_one_letter_of_the_same_length() {
    let with = [Deviation::OneLetterFiller];
    let cases = [(Table::Customer, 20, 300..=500), (Table::History, 7, 12..=24), (Table::Stock, 6, 24..=24)];
    let cases = cases.into_iter().chain([(Table::Stock, 16, 26..=50), (Table::OrderLine, 9, 24..=24)]);
    for (table, column, lengths) in cases {
        for row in rows_with(table, 0, &with) {
            let filler = text(&row, column);
            assert!(lengths.contains(&filler.len()));
            assert!(filler.bytes().all(|byte| byte == filler.as_bytes()[0]), "{filler}");
        }
    }
    assert!(text(&rows_with(Table::Customer, 0, &with)[0], 6).bytes().any(|byte| byte != b'a'));
}

#[test]
fn the_constant_of_last_names_can_be_fixed() {
    assert_eq!(Population::new(5, 1, Deviations::from_iter([Deviation::ConstantC])).c_load(), 123);
}

#[test]
fn deviations_of_transactions_change_no_row() {
    for &deviation in Deviation::ALL.iter().filter(|deviation| !deviation.changes_data()) {
        for table in TABLES {
            assert_eq!(rows_with(table, 0, &[deviation]), rows_with(table, 0, &[]), "{}", deviation.name());
        }
    }
}
