use proptest::prelude::*;

use super::{IntError, fixed, looks_like_int, parse_double, parse_int, *};

fn text(value: Value) -> String {
    let mut out = Vec::new();
    value.write_text(&mut out);
    String::from_utf8(out).unwrap_or_default()
}

#[test]
fn doubles_are_formatted_as_in_c_with_15_digits() {
    let table = [
        (15.0, "15"),
        (-27.0, "-27"),
        (1024.0, "1024"),
        (-0.125, "-0.125"),
        (-0.00032, "-0.00032"),
        (9_223_372_036_854_775_807_f64.powi(2), "8.50705917302346e+37"),
        (1e30, "1e+30"),
        (0.1, "0.1"),
        (1.0 / 3.0, "0.333333333333333"),
        (2.0 / 3.0, "0.666666666666667"),
        (1e-4, "0.0001"),
        (1e-5, "1e-05"),
        (999_999_999_999_999.0, "999999999999999"),
        (1e15, "1e+15"),
        (123_456_789_012_345_680.0, "1.23456789012346e+17"),
        (0.999_999_999_999_999_9, "1"),
        (100_000_000_000_000.5, "100000000000000"),
        (100_000_000_000_001.5, "100000000000002"),
        (1.7e308, "1.7e+308"),
        (5e-324, "4.94065645841247e-324"),
        (0.0, "0"),
        (-0.0, "-0"),
        (f64::INFINITY, "Infinity"),
        (f64::NEG_INFINITY, "-Infinity"),
        (f64::NAN, "NaN"),
        (120.0, "120"),
        (-542.1, "-542.1"),
    ];
    for (double, expected) in table {
        assert_eq!(text(Value::Double(double)), expected);
    }
}

#[test]
fn other_values_are_formatted_as_sql_literals() {
    let table = [
        (Value::Null, "NULL"),
        (Value::Boolean(true), "true"),
        (Value::Boolean(false), "false"),
        (Value::Int(0), "0"),
        (Value::Int(i64::MIN), "-9223372036854775808"),
    ];
    for (value, expected) in table {
        assert_eq!(text(value), expected);
    }
}

#[test]
fn debug_lines_contain_script_command_type_and_value() {
    let line = |value| DebugLine { script: 1, command: 0, value }.to_string();
    assert_eq!(line(Value::Null), "debug(script=1,command=1): null");
    assert_eq!(line(Value::Boolean(true)), "debug(script=1,command=1): boolean true");
    assert_eq!(line(Value::Int(-3)), "debug(script=1,command=1): int -3");
    assert_eq!(line(Value::Double(0.5)), "debug(script=1,command=1): double 0.5");
}

#[test]
fn doubles_are_rounded_to_the_nearest_integer() {
    let table =
        [(7.3, 7), (2.5, 2), (3.5, 4), (-2.5, -2), (-0.4, 0), (-9_223_372_036_854_775_808.0, i64::MIN)];
    for (double, int) in table {
        assert_eq!(Value::Double(double).int(), Ok(int));
    }
    let table = [
        (1e32, "double to int overflow for 100000000000000005366162204393472.000000"),
        (9_223_372_036_854_775_808.0, "double to int overflow for 9223372036854775808.000000"),
        (f64::NAN, "double to int overflow for NaN"),
        (f64::NEG_INFINITY, "double to int overflow for -Infinity"),
    ];
    for (double, message) in table {
        assert_eq!(Value::Double(double).int().map_err(|e| e.to_string()), Err(message.into()));
    }
}

#[test]
fn a_value_of_the_wrong_type_is_named() {
    let message = |result: Result<(), EvaluationError>| result.map_err(|e| e.to_string());
    assert_eq!(message(Value::Boolean(true).int().map(drop)), Err("cannot coerce boolean to int".into()));
    assert_eq!(message(Value::Null.double().map(drop)), Err("cannot coerce null to double".into()));
    assert_eq!(message(Value::Int(1).boolean().map(drop)), Err("cannot coerce int to boolean".into()));
    assert_eq!(
        message(Value::Double(0.0).boolean().map(drop)),
        Err("cannot coerce double to boolean".into())
    );
}

#[test]
fn integers_are_parsed_as_in_c() {
    let table = [
        ("17", Ok(17)),
        (" \t+3", Ok(3)),
        ("-9223372036854775808", Ok(i64::MIN)),
        ("9223372036854775808", Err(IntError::Range)),
        ("", Err(IntError::Syntax)),
        ("+", Err(IntError::Syntax)),
        ("1 ", Err(IntError::Syntax)),
        ("--1", Err(IntError::Syntax)),
    ];
    for (text, expected) in table {
        assert_eq!(parse_int(text.as_bytes()), expected, "{text:?}");
    }
    assert!(looks_like_int(b" -"));
    assert!(!looks_like_int(b"1.0"));
}

#[test]
fn doubles_are_parsed_as_in_c() {
    let table = [
        ("1.5", Some(1.5)),
        (" -10.1", Some(-10.1)),
        ("1.", Some(1.0)),
        (".5e1", Some(5.0)),
        ("0e-999", Some(0.0)),
        ("1e309", None),
        ("1e-310", None),
        ("1e", None),
        ("e5", None),
        (".", None),
        ("bla", None),
        ("1.5 ", None),
        ("+-1.5", None),
        ("INF", Some(f64::INFINITY)),
        ("-infinity", Some(f64::NEG_INFINITY)),
        ("0x1p4", Some(16.0)),
        ("-0X1.8", Some(-1.5)),
        ("0x", None),
        ("0xp1", None),
        ("0x1p", None),
        ("0x1p2000", None),
        ("0x1p-1060", None),
        ("0x0p9999", Some(0.0)),
        ("0x10000000000000001", Some(18_446_744_073_709_551_616.0)),
    ];
    for (text, expected) in table {
        assert_eq!(parse_double(text.as_bytes()), expected, "{text:?}");
    }
    assert!(parse_double(b"nan").is_some_and(f64::is_nan));
    assert!(parse_double(b"NaN(x_1)").is_some_and(f64::is_nan));
    assert_eq!(fixed(2.0), "2.000000");
}

proptest! {
    #[test]
    fn parsing_any_text_as_a_number_does_not_panic(bytes: Vec<u8>) {
        let _ = (parse_int(&bytes), parse_double(&bytes), looks_like_int(&bytes));
    }

    #[test]
    fn formatted_integers_round_trip(int: i64) {
        prop_assert_eq!(parse_int(text(Value::Int(int)).as_bytes()), Ok(int));
    }

    #[test]
    fn formatted_doubles_round_trip_with_15_digits(bits: u64) {
        let double = f64::from_bits(bits);
        prop_assume!(double.is_normal());
        let read = parse_double(text(Value::Double(double)).as_bytes());
        // Digits may be rounded up to a number that is too large.
        prop_assume!(double.abs() < 1.797e308);
        prop_assert!(read.is_some_and(|read| (read / double - 1.0).abs() < 1e-14), "{:?}", read);
    }
}
