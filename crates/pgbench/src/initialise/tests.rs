use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::partition::{Bound, hash_of_key, hold_all};
use super::plan::{self, Part};
use super::rows::{Accounts, Branches, HashedAccounts, Sent, Tellers};
use super::specification::Initialise;
use super::tables;
use loader::dataset::Rows;

fn initialise(text: &Value) -> Initialise {
    serde_json::from_value(text.clone()).expect("sound")
}

const WHOLE: Sent = Sent { big: false, constants: true };

/// The first column of every row in all groups. `row_bytes`: length of a row without this column.
fn keys(rows: &dyn Rows, row_bytes: usize, key_bytes: usize) -> Vec<i64> {
    let mut keys = Vec::new();
    for group in 0..rows.groups() {
        let mut out = Vec::new();
        let count = rows.append(group, &mut out);
        assert_eq!(out.len() as u64, count * row_bytes as u64, "append tells how many rows it wrote");
        let key = |row: &[u8]| row[6..6 + key_bytes].iter().fold(0, |key, &byte| key << 8 | i64::from(byte));
        keys.extend(out.chunks(row_bytes).map(key));
    }
    keys
}

#[test]
fn every_row_is_generated_once_in_order() {
    for (first, last) in [(1, 1), (1, 4999), (1, 5000), (1, 5001), (70_001, 100_000), (5, 4)] {
        for (big, constants, row_bytes, key_bytes) in
            [(false, true, 30, 4), (true, true, 34, 8), (false, false, 18, 4), (true, false, 22, 8)]
        {
            let sent = Sent { big, constants };
            let made = keys(&Accounts { first, last, sent }, row_bytes, key_bytes);
            assert!(made.into_iter().eq(first..=last), "{first}..={last}");
        }
    }
    assert!(keys(&Tellers { branches: 1234 }, 30, 4).into_iter().eq(1..=12_340));
    assert!(keys(&Branches { branches: 5001 }, 22, 4).into_iter().eq(1..=5001));
}

#[test]
fn a_copy_without_rows_is_valid() {
    assert_eq!(Accounts { first: 9, last: 8, sent: WHOLE }.groups(), 1);
}

#[test]
fn an_account_equals_pgbenchs() {
    let columns = [&200_001_i32.to_be_bytes()[..], &3_i32.to_be_bytes(), &[0; 4], &[]];
    for (constants, count) in [(true, 4), (false, 2)] {
        let (mut out, sent) = (Vec::new(), Sent { big: false, constants });
        Accounts { first: 200_001, last: 200_001, sent }.append(0, &mut out);
        let expected = columns[..count].iter().fold(vec![0, count as u8], |mut row, column| {
            row.extend((column.len() as i32).to_be_bytes());
            row.extend_from_slice(column);
            row
        });
        assert_eq!(out, expected);
    }
}

#[test]
fn each_account_is_in_one_hash_partition() {
    let of = |remainder| HashedAccounts { accounts: 100_000, sent: WHOLE, modulus: 7, remainder };
    let made: Vec<_> = (0..7).flat_map(|remainder| keys(&of(remainder), 30, 4)).collect();
    assert_eq!(made.len(), 100_000);
    assert!(made.into_iter().collect::<BTreeSet<_>>().into_iter().eq(1..=100_000));
}

/// Oracle: SELECT hashint8extended(key, x'7A5B22367996DCFD'::bigint) of PostgreSQL 15, to which the server adds
/// a constant when it combines the hash with the initial value.
#[test]
fn keys_have_the_hash_of_the_server() {
    for (key, expected) in HASHES {
        assert_eq!(hash_of_key(key), (expected as u64).wrapping_add(0x49A0_F4DD_15E5_A8E3), "{key}");
    }
}

const HASHES: [(i64, i64); 4] = [
    (1, 5_968_994_663_651_403_477),
    (42, 7_363_975_540_656_877_951),
    (2_147_483_647, -6_050_265_599_104_649_060),
    (21_474_836_400_000, 5_565_989_919_000_971_038),
];

#[test]
fn bounds_are_parsed_in_the_format_of_the_server() {
    let cases = [
        ("FOR VALUES FROM (MINVALUE) TO (100001)", Some(Bound::Range(i64::MIN, 100_001))),
        ("FOR VALUES FROM ('100001') TO (MAXVALUE)", Some(Bound::Range(100_001, i64::MAX))),
        ("FOR VALUES WITH (modulus 3, remainder 2)", Some(Bound::Hash(3, 2))),
        ("FOR VALUES IN (1)", None),
        ("FOR VALUES FROM (1, 2) TO (3, 4)", None),
        ("DEFAULT", None),
    ];
    for (text, expected) in cases {
        assert_eq!(Bound::parse(text), expected, "{text}");
    }
}

#[test]
fn rows_are_sent_to_partitions_only_if_each_has_exactly_one() {
    use Bound::{Hash, Range};
    let cases: [(&[Bound], bool); 9] = [
        (&[Range(i64::MIN, 51), Range(51, i64::MAX)], true),
        (&[Range(51, 101), Range(1, 51)], true),
        (&[Range(1, 51), Range(52, 101)], false),
        (&[Range(1, 51), Range(51, 100)], false),
        (&[Range(2, 101)], false),
        (&[Hash(2, 1), Hash(2, 0)], true),
        (&[Hash(2, 1)], false),
        (&[Hash(2, 0), Hash(4, 1), Hash(4, 3)], false),
        (&[], false),
    ];
    for (bounds, expected) in cases {
        assert_eq!(hold_all(bounds, 100), expected, "{bounds:?}");
    }
}

#[test]
fn invalid_options_have_pgbenchs_messages() {
    let cases = [
        (json!({"scale": 0}), "scale: 0 is not between 1 and"),
        (json!({"scale": 214_748_365}), "scale"),
        (json!({"scale": 1, "fillfactor": 9}), "fillfactor: 9 is not between 10 and 100"),
        (json!({"scale": 1, "fillfactor": 101}), "fillfactor"),
        (json!({"scale": 1, "partitions": 100_001}), "partitions"),
        (
            json!({"scale": 1, "partition_method": "hash"}),
            "--partition-method requires greater than zero --partitions",
        ),
        (json!({"scale": 1, "steps": ""}), "no initialization steps specified"),
        (json!({"scale": 1, "steps": "dtx"}), "unrecognized initialization step \"x\""),
        (json!({"scale": 1, "steps": "g".repeat(101)}), "more than 100"),
    ];
    for (text, expected) in cases {
        let problem = initialise(&text).problem().expect(expected);
        assert!(problem.contains(expected), "{text}: {problem}");
    }
}

#[test]
fn steps_are_executed_in_their_order_and_number() {
    let text = json!({"scale": 1, "steps": "G pd", "foreign_keys": true});
    let found = plan::rounds(&initialise(&text).steps_in_order());
    let expected = [
        ((0, 'G'), Part::Generate),
        ((1, 'p'), Part::PartitionKeys),
        ((1, 'p'), Part::Keys),
        ((2, 'd'), Part::Drop),
        ((3, 'f'), Part::ForeignKeys),
    ];
    assert_eq!(found, expected);
    let twice = json!({"scale": 1, "steps": "fgg", "foreign_keys": true});
    let fills = plan::rounds(&initialise(&twice).steps_in_order());
    assert_eq!(fills.iter().filter(|(_, part)| *part == Part::Fill(0)).count(), 2);
    assert_eq!(fills.iter().filter(|(_, part)| *part == Part::ForeignKeys).count(), 1);
}

#[test]
fn tables_are_created_with_the_requested_options() {
    let cases = [
        (
            json!({"scale": 1}),
            "pgbench_branches(bid int not null,bbalance int,filler char(88)) with (fillfactor=100)",
        ),
        (json!({"scale": 19_999}), "create table pgbench_accounts(aid    int not null,"),
        (json!({"scale": 20_000}), "create table pgbench_accounts(aid bigint not null,"),
        (json!({"scale": 20_000}), "create table pgbench_history(tid int,bid int,aid bigint,"),
        (json!({"scale": 1, "unlogged": true}), "create unlogged table pgbench_tellers("),
        (json!({"scale": 1, "unlogged": true, "partitions": 2}), "create table pgbench_tellers("),
        (
            json!({"scale": 1, "unlogged": true, "partitions": 3, "fillfactor": 70}),
            "create unlogged table pgbench_accounts_2\n  partition of pgbench_accounts\n  \
             for values from (33335) to (66669) with (fillfactor=70)",
        ),
        (
            json!({"scale": 1, "partitions": 2, "tablespace": "a\"b"}),
            "partition by range (aid) tablespace \"a\"\"b\"",
        ),
        (
            json!({"scale": 1, "partitions": 2, "partition_method": "hash"}),
            "for values with (modulus 2, remainder 1)",
        ),
    ];
    for (text, expected) in cases {
        let statements = tables::create(&initialise(&text)).join(";\n");
        assert!(statements.contains(expected), "{text}: {statements}");
    }
}

#[test]
fn only_pgbenchs_columns_identify_its_tables() {
    let cases = [
        ("pgbench_branches", "bid integer, bbalance integer, filler character(88)", true),
        ("pgbench_branches", "bid integer, bbalance integer, filler character(84)", false),
        ("pgbench_branches", "bid integer, bbalance integer, filler character(88), more text", false),
        ("pgbench_accounts", "aid bigint, bid integer, abalance integer, filler character(84)", true),
        ("pgbench_accounts", "aid smallint, bid integer, abalance integer, filler character(84)", false),
        ("pgbench_tellers", "", false),
    ];
    for (table, columns, expected) in cases {
        assert_eq!(tables::are_pgbench_columns(table, columns), expected, "{table}: {columns}");
    }
}
