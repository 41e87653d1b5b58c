use proptest::collection::vec;
use proptest::prelude::*;

use super::super::frontend::{self, Cents, Decimal, EncodeError, Parameter};
use super::super::{copy, numeric};
use super::hex;

type Append = fn(&mut Vec<u8>);
type FallibleAppend = fn(&mut Vec<u8>) -> Result<(), EncodeError>;

/// PostgreSQL 15: `select encode(numeric_send(v), 'hex')` of scaled / 10^scale.
const NUMERICS: [(i64, u8, &str); 29] = [
    (0, 0, "0000000000000000"),
    (0, 2, "0000000000000002"),
    (1, 2, "0001ffff000000020064"),
    (-1, 2, "0001ffff400000020064"),
    (1, 0, "00010000000000000001"),
    (100, 2, "00010000000000020001"),
    (1234, 2, "0002000000000002000c0d48"),
    (-1234, 2, "0002000040000002000c0d48"),
    (100, 0, "00010000000000000064"),
    (10_000, 0, "00010001000000000001"),
    (1_000_000, 2, "00010001000000020001"),
    (100_000_000, 0, "00010002000000000001"),
    (999_999, 2, "0002000000000002270f26ac"),
    (30_000_000, 2, "0001000100000002001e"),
    (-1000, 2, "0001000040000002000a"),
    (1812, 4, "0001ffff000000040714"),
    (725, 4, "0001ffff0000000402d5"),
    (1, 5, "0001fffe0000000503e8"),
    (12_345_678, 5, "0003000000000005007b11d71f40"),
    (1, 8, "0001fffe000000080001"),
    (123_456_789_012_345, 7, "000400010000000704d2162e23340d7a"),
    (i64::MAX, 2, "0006000400000002000908b91c231ac61e4e02bc"),
    (i64::MIN, 2, "0006000440000002000908b91c231ac61e4e0320"),
    (i64::MAX, 0, "0005000400000000039a0d2c0170156516af"),
    (i64::MIN, 0, "0005000440000000039a0d2c0170156516b0"),
    (i64::MAX, 19, "0005ffff0000001324070e880e6512a71f86"),
    (i64::MAX, 1, "0006000400000001005c092107f421631d9c1b58"),
    (i64::MAX, 3, "000500030000000324070e880e6512a71f86"),
    (10, 2, "0001ffff0000000203e8"),
];

#[test]
fn numerics_have_the_bytes_of_postgresql_and_round_trip() {
    for (scaled, scale, expected) in NUMERICS {
        let mut bytes = Vec::new();
        numeric::append(&mut bytes, scaled, scale);
        assert_eq!(hex(&bytes), expected, "{scaled} / 10^{scale}");
        assert!(bytes.len() <= numeric::ENCODED_BYTES_MAX);
        assert_eq!(numeric::read(&bytes, scale), Some(scaled));
    }
}

#[test]
fn a_numeric_with_more_decimals_than_the_scale_is_not_read() {
    let table: [(&[u8], &str); 9] = [
        (&[], "empty"),
        (&[0, 1, 0, 0, 0, 0, 0, 0], "a digit short"),
        (&[0, 0, 0, 0, 0xc0, 0, 0, 0], "NaN"),
        (&[0, 0, 0, 0, 0xd0, 0, 0, 0x20], "infinity"),
        (&[0, 1, 0, 0, 0, 0, 0, 0, 0x27, 0x10], "a digit of 10000"),
        (&[0, 1, 0xff, 0xff, 0, 0, 0, 4, 0, 1], "0.0001 in hundredths"),
        (&[0, 1, 0, 9, 0, 0, 0, 0, 0, 1], "10^36"),
        (&[0, 1, 0x7f, 0xff, 0, 0, 0, 0, 0, 1], "the largest weight"),
        (&[0, 1, 0x80, 0, 0, 0, 0, 0, 0, 1], "the smallest weight"),
    ];
    for (bytes, what) in table {
        assert_eq!(numeric::read(bytes, 2), None, "{what}");
    }
}

/// PostgreSQL 15: `copy (select 1::int2, -2::int4, 3::int8, 'abc'::text, 'xy'::char(4), 12.34::numeric(6,2),
/// '2000-01-01 00:00:01+00'::timestamptz, null::int4) to stdout binary`.
const COPIED: &str = "5047434f50590aff0d0a000000000000000000000800000002000100000004fffffffe0000000800000000000000\
                      030000000361626300000004787920200000000c0002000000000002000c0d480000000800000000000f4240ffff\
                      ffffffff";

#[test]
fn a_copied_row_has_the_bytes_of_postgresql() {
    let mut out = Vec::new();
    copy::header(&mut out);
    copy::row(&mut out, 8);
    copy::int2(&mut out, 1);
    copy::int4(&mut out, -2);
    copy::int8(&mut out, 3);
    copy::text(&mut out, b"abc");
    copy::text(&mut out, b"xy  ");
    copy::numeric(&mut out, 1234, 2);
    copy::timestamptz(&mut out, 1_000_000);
    copy::null(&mut out);
    copy::trailer(&mut out);
    assert_eq!(hex(&out), COPIED);
}

#[test]
fn rows_are_written_without_an_allocation_once_the_buffer_has_room() {
    let mut out = Vec::with_capacity(4096);
    let address = out.as_ptr();
    for i in 0..20 {
        copy::row(&mut out, 2);
        copy::numeric(&mut out, i64::from(i) * 1_000_003, 2);
        copy::text(&mut out, b"text");
    }
    assert_eq!(out.as_ptr(), address);
}

fn appended(append: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>) -> Vec<u8> {
    let mut out = Vec::new();
    append(&mut out).unwrap();
    out
}

/// Expected bytes from the protocol documentation of message formats.
#[test]
fn messages_have_the_documented_bytes() {
    let user = [("user", "al"), ("database", "db")];
    assert_eq!(
        appended(|out| frontend::startup(out, user)),
        b"\0\0\0\x1d\0\x03\0\0user\0al\0database\0db\0\0"
    );
    assert_eq!(appended(|out| frontend::password(out, b"pw")), b"p\0\0\0\x07pw\0");
    assert_eq!(
        appended(|out| frontend::sasl_initial_response(out, "M", b"xy")),
        b"p\0\0\0\x0cM\0\0\0\0\x02xy"
    );
    assert_eq!(appended(|out| frontend::sasl_response(out, b"xy")), b"p\0\0\0\x06xy");
    assert_eq!(appended(|out| frontend::query(out, "select 1")), b"Q\0\0\0\x0dselect 1\0");
    assert_eq!(appended(|out| frontend::parse(out, "s", "q", &[23])), b"P\0\0\0\x0es\0q\0\0\x01\0\0\0\x17");
    assert_eq!(
        appended(|out| frontend::bind(out, "s", &[&7i32, &None::<i32>, &"x"])),
        b"B\0\0\0\x22\0s\0\0\x01\0\x01\0\x03\0\0\0\x04\0\0\0\x07\xff\xff\xff\xff\0\0\0\x01x\0\x01\0\x01"
    );
    assert_eq!(appended(|out| frontend::copy_fail(out, "no")), b"f\0\0\0\x07no\0");
    let fixed: [(Append, &[u8]); 6] = [
        (frontend::ssl_request, b"\0\0\0\x08\x04\xd2\x16\x2f"),
        (frontend::execute, b"E\0\0\0\x09\0\0\0\0\0"),
        (frontend::sync, b"S\0\0\0\x04"),
        (frontend::describe, b"D\0\0\0\x06P\0"),
        (frontend::terminate, b"X\0\0\0\x04"),
        (frontend::copy_done, b"c\0\0\0\x04"),
    ];
    for (append, bytes) in fixed {
        let mut out = Vec::new();
        append(&mut out);
        assert_eq!(out, bytes);
    }
    let mut out = Vec::new();
    frontend::cancel_request(&mut out, 1, 2);
    assert_eq!(out, b"\0\0\0\x10\x04\xd2\x16\x2e\0\0\0\x01\0\0\0\x02");
}

#[test]
fn a_copy_data_message_may_be_written_in_place() {
    let mut out = b"before".to_vec();
    let begun = frontend::copy_data_begin(&mut out);
    out.extend_from_slice(b"xy");
    frontend::copy_data_end(&mut out, &begun).unwrap();
    assert_eq!(out, b"befored\0\0\0\x06xy");
}

/// PostgreSQL 15: `select encode(array_send(array[1,2,-3]::int4[]), 'hex')`, also of `'{}'::int4[]`; scalars by the send functions of their types.
#[test]
fn parameters_have_the_bytes_of_postgresql() {
    let table: [(&dyn Parameter, &str); 10] = [
        (
            &&[1i32, 2, -3][..],
            "00000001000000000000001700000003000000010000000400000001000000040000000200000004fffffffd",
        ),
        (&&[0i32; 0][..], "000000000000000000000017"),
        (&-2i16, "fffe"),
        (&3i64, "0000000000000003"),
        (&1.5f64, "3ff8000000000000"),
        (&true, "01"),
        (&Cents(-1), "0001ffff400000020064"),
        (&Decimal { scaled: 725, scale: 4 }, "0001ffff0000000402d5"),
        (&String::from("ab"), "6162"),
        (&Some(&b"\0\x01"[..]), "0001"),
    ];
    for (parameter, expected) in table {
        let mut out = Vec::new();
        assert!(parameter.append(&mut out));
        assert_eq!(hex(&out), expected);
    }
}

#[test]
fn a_message_that_fails_leaves_the_buffer_as_it_was() {
    let table: [FallibleAppend; 6] = [
        |out| frontend::startup(out, [("user", "a\0b")]),
        |out| frontend::query(out, "select '\0'"),
        |out| frontend::parse(out, "s", "q\0", &[]),
        |out| frontend::bind(out, "s\0", &[]),
        |out| frontend::password(out, b"\0"),
        |out| frontend::parse(out, "s", "q", &vec![23; 65_536]),
    ];
    for append in table {
        let mut out = b"before".to_vec();
        let error = append(&mut out).unwrap_err();
        assert!(matches!(error, EncodeError::ZeroByte { .. } | EncodeError::TooLong { .. }), "{error}");
        assert_eq!(out, b"before");
    }
}

proptest! {
    #[test]
    fn integers_are_as_rust_formats_them(int in any::<i64>()) {
        for int in [int, int % 1000, 0, i64::MIN, i64::MAX] {
            let mut out = Vec::new();
            frontend::write_int(&mut out, int);
            prop_assert_eq!(out, int.to_string().into_bytes());
        }
    }

    #[test]
    fn every_integer_round_trips_through_the_numeric_format(scaled in any::<i64>(), scale in 0..=40u8) {
        let mut bytes = Vec::new();
        numeric::append(&mut bytes, scaled, scale);
        prop_assert_eq!(numeric::read(&bytes, scale), Some(scaled));
        // PostgreSQL strips zeros at both ends, and so must these bytes.
        let digits: Vec<_> = bytes[8..].chunks(2).collect();
        prop_assert!(digits.first() != Some(&&[0, 0][..]) && digits.last() != Some(&&[0, 0][..]));
    }

    #[test]
    fn reading_any_bytes_as_a_numeric_does_not_panic(bytes in vec(any::<u8>(), 0..40), scale in any::<u8>()) {
        let _ = numeric::read(&bytes, scale);
    }
}
