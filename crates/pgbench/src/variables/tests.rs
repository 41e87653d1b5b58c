#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;

fn value_of(text: &[u8]) -> Result<Value, String> {
    let mut names = Names::default();
    let slot = names.intern(b"foo").unwrap();
    let mut variables = Variables::default();
    variables.set_text(slot, text);
    let value = variables.value(slot, &names);
    // The second read gives the same value.
    assert_eq!(variables.value(slot, &names), value);
    let mut out = Vec::new();
    assert!(variables.write_text(slot, &mut out));
    assert_eq!(out, text);
    value.map_err(|e| e.to_string())
}

#[test]
fn texts_have_the_same_values_as_in_pgbench() {
    let (yes, no) = (Value::Boolean(true), Value::Boolean(false));
    let table = [
        ("null", Value::Null),
        ("NULL", Value::Null),
        ("t", yes),
        ("TRUE", yes),
        ("y", yes),
        ("ye", yes),
        ("on", yes),
        ("f", no),
        ("false", no),
        ("n", no),
        ("no", no),
        ("of", no),
        ("OFF", no),
        ("+3", Value::Int(3)),
        ("-9223372036854775808", Value::Int(i64::MIN)),
        ("0", Value::Int(0)),
        ("1.0", Value::Double(1.0)),
        ("-10.1", Value::Double(-10.1)),
        ("1e3", Value::Double(1000.0)),
        ("inf", Value::Double(f64::INFINITY)),
    ];
    for (text, value) in table {
        assert_eq!(value_of(text.as_bytes()), Ok(value), "{text}");
    }
}

#[test]
fn invalid_texts_are_errors_when_the_value_is_read() {
    let table = [
        ("", ""),
        ("o", "malformed variable \"foo\" value: \"o\""),
        ("bla", "malformed variable \"foo\" value: \"bla\""),
        ("trueXXX", "malformed variable \"foo\" value: \"trueXXX\""),
        ("1e400", "malformed variable \"foo\" value: \"1e400\""),
        ("9223372036854775808", "value \"9223372036854775808\" is out of range for type bigint"),
        ("-", "invalid input syntax for type bigint: \"-\""),
        (" ", "invalid input syntax for type bigint: \" \""),
    ];
    for (text, message) in table {
        assert_eq!(value_of(text.as_bytes()), Err(message.into()), "{text}");
    }
}

#[test]
fn an_unset_variable_is_undefined() {
    let mut names = Names::default();
    let early = names.intern("größe".as_bytes()).unwrap();
    let mut variables = Variables::default();
    let late = names.intern(b"late").unwrap();
    for (slot, message) in [(late, "undefined variable \"late\""), (early, "undefined variable \"größe\"")]
    {
        assert!(!variables.is_defined(slot));
        assert!(!variables.write_text(slot, &mut Vec::new()));
        assert_eq!(variables.value(slot, &names).map_err(|e| e.to_string()), Err(message.into()));
        variables.set(slot, Value::Int(1));
        assert_eq!(variables.value(slot, &names), Ok(Value::Int(1)));
    }
}

#[test]
fn names_are_letters_of_any_script_digits_and_underscores() {
    let table = [
        ("a", true),
        ("_1", true),
        ("größe", true),
        ("Ω2", true),
        ("", false),
        ("1a", false),
        (".", false),
        ("bad name!", false),
        ("?column?", false),
    ];
    for (name, valid) in table {
        assert_eq!(is_name(name.as_bytes()), valid, "{name}");
    }
    assert_eq!(name_length(b"aid; "), 3);
    assert_eq!(name_length(b":int"), 0);
}

#[test]
fn a_name_keeps_its_slot_and_the_number_of_names_is_limited() {
    let mut names = Names::default();
    for number in 0..VARIABLES_MAX {
        assert_eq!(names.intern(format!("v{number}").as_bytes()).map(Slot::index), Ok(number));
    }
    assert_eq!(names.intern(b"one_more"), Err(TooManyVariables));
    assert_eq!(names.intern(b"v7").map(Slot::index), Ok(7));
    assert_eq!(names.names.len(), VARIABLES_MAX);
}

proptest! {
    #[test]
    fn any_text_has_a_value_or_an_error(text: Vec<u8>) {
        let _ = value_of(&text);
    }
}
