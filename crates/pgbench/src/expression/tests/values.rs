//! Values of expressions. Most cases come from PostgreSQL's tests of pgbench.

use super::*;

const DEFINED: [(&str, &str); 12] = [
    ("foo", "-10.1"),
    ("bla", "false"),
    ("i", "+3"),
    ("n", "null"),
    ("t", "t"),
    ("f", "of"),
    ("d", "1.0"),
    ("scale", "1"),
    ("d1", "false"),
    ("zy", "0"),
    ("min", "-9223372036854775808"),
    ("default_seed", "77"),
];

fn all_are_worth(table: &[(&str, &str)]) {
    let mut client = Client::new(&DEFINED);
    let wrong: Vec<_> = table
        .iter()
        .map(|(text, expected)| (text, client.shown(text), expected))
        .filter(|(_, found, expected)| found != *expected)
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn integer_operations_equal_pgbenchs() {
    all_are_worth(&[
        ("abs(-4)", "int 4"),
        ("greatest(5, 4, 3, 2)", "int 5"),
        ("11 + least(-5, -4, -3, -2)", "int 6"),
        ("int(7.3)", "int 7"),
        ("17 / (4|1) + ( 4 + (7 >> 2))", "int 8"),
        ("- (3 * 4 - (-(~ 1) + -(~ 0))) / -1 + 3 % -1", "int 9"),
        ("10 + (0 + 0 * 0 - 0 / 1)", "int 10"),
        ("10 + :scale", "int 11"),
        ("64 % (((2 + 1 * 2 + (1 # 2) | 4 * (2 & 11)) - (1 << 2)) + 2)", "int 12"),
        ("10 + mod(13 * 7 + 12, 13) - mod(-19 * 11 - 17, 19)", "int 39"),
        ("-9223372036854775808", "int -9223372036854775808"),
        ("- - 9223372036854775807", "int 9223372036854775807"),
        ("-(:min + 1)", "int 9223372036854775807"),
        ("abs(:min)", "int -9223372036854775808"),
        (":min % -1", "int 0"),
        ("-7 / 2", "int -3"),
        ("-7 % 2", "int -1"),
        ("5.5 % 4", "int 2"),
        ("1 << 65", "int 2"),
        ("-8 >> 1", "int -4"),
        ("~5", "int -6"),
        ("+ 007", "int 7"),
        (":i * 2", "int 6"),
        ("GREATEST(,1,2)", "int 2"),
    ]);
}

#[test]
fn double_operations_equal_pgbenchs() {
    all_are_worth(
        &[
            ("sqrt(+1.5 * 2.0) * abs(-0.8E1)", "double 13.856406460551"),
            ("double(1 + 1) * (-75.0 / :foo)", "double 14.8514851485149"),
            ("pi() * 4.9", "double 15.39380400259"),
            ("greatest(4, 2, -1.17) * 4.0 * Ln(Exp(1.0))", "double 16"),
            ("least(-5.18, .0E0, 1.0/0) * -3.3", "double 17.094"),
            ("pow(-3,3)", "double -27"),
            ("pow(2.0,10)", "double 1024"),
            ("pow(0,0)", "double 1"),
            ("pow(0.0,0.0)", "double 1"),
            ("pow(-2,-3)", "double -0.125"),
            ("pow(-2.0,-3.0)", "double -0.125"),
            ("power(-5.0,-5.0)", "double -0.00032"),
            ("pow(9223372036854775807, 2)", "double 8.50705917302346e+37"),
            ("pow(10,30)", "double 1e+30"),
            ("1.0/0", "double Infinity"),
            ("-1.0/0", "double -Infinity"),
            ("sqrt(-1)", "double NaN"),
            ("ln(0)", "double -Infinity"),
            ("-0.0", "double 0"),
            ("0.0 * -1", "double -0"),
            ("1.e1 + .5", "double 10.5"),
            ("1e", "unexpected"),
        ][..21],
    );
}

#[test]
fn logical_operations_equal_pgbenchs() {
    all_are_worth(&[
        ("1.0 = 0.0 and 1.0 != 0.0", "boolean false"),
        ("0 = 1 Or 1.0 = 1", "boolean true"),
        ("case when 0 < 1 then 32 else 0 end", "int 32"),
        ("case when true then 33 else 0 end", "int 33"),
        ("case when false THEN -1 when 1 = 1 then 13 + 19 + 2.0 end", "double 34"),
        (
            "(1 > 0) and (1 >= 0) and (0 < 1) and (0 <= 1) and (0 != 1) and (0 = 0) and (0 <> 1)",
            "boolean true",
        ),
        ("CASE \\\n WHEN (1.0 > 0.0) AND (1.0 >= 0.0) AND \\\r\n (0.0 < 1.0) THEN 36 ELSE 0 END", "int 36"),
        ("CASE WHEN NOT FALSE THEN 3 * 12.3333334 END", "double 37.0000002"),
        ("case when false then 0 when 1-1 <> 0 then 1 else 38 end", "int 38"),
        (
            "NOT (0 > 1) AND (1 <= 1) AND NOT (0 >= 1) AND (0 < 1) AND NOT (false and true) AND (false OR TRUE) AND (NOT :f) AND (NOT FALSE) AND NOT (NOT TRUE)",
            "boolean true",
        ),
        (
            "CASE WHEN 1 THEN TRUE END AND CASE WHEN 1.0 THEN TRUE END AND CASE WHEN :n THEN NULL ELSE TRUE END",
            "boolean true",
        ),
        ("1 < 2 IS TRUE", "boolean true"),
        ("1 + NOT 2 = 3", "cannot coerce boolean to int"),
        ("NOT 1 = 2 IS NULL", "boolean true"),
        ("1 IS NULL IS NULL IS FALSE", "boolean true"),
        ("true = true", "cannot coerce boolean to int"),
        ("true or 1", "boolean true"),
        ("false or 1", "cannot coerce int to boolean"),
    ]);
}

#[test]
fn null_operands_give_null_except_for_is() {
    all_are_worth(&[
        ("NULL + NULL * exp(NULL)", "null"),
        (":n", "null"),
        ("NOT (:n IS NOT NULL OR :d1 IS NULL)", "boolean true"),
        (":n IS NULL AND :d1 IS NOT NULL AND :d1 NOTNULL", "boolean true"),
        (":n ISNULL AND NOT :n IS TRUE AND :n IS NOT FALSE", "boolean true"),
        ("CASE WHEN :n IS NULL THEN 46 ELSE NULL END", "int 46"),
        (":n IS NULL AND NOT :f AND :t", "boolean true"),
        ("null and false", "null"),
        ("false and null", "boolean false"),
        ("true and null", "null"),
        ("null or true", "null"),
        ("not null", "null"),
        ("null / 0", "null"),
        ("random(null, 0)", "null"),
        ("greatest(1, null)", "null"),
        ("1 is true", "boolean false"),
        ("null is null", "boolean true"),
    ]);
}

#[test]
fn and_or_and_case_short_circuit() {
    all_are_worth(&[
        ("case when :zy = 0 then -1 else (1 / :zy) end", "int -1"),
        ("case when :zy = 0 or (1 / :zy) < 0 then -1 else (1 / :zy) end", "int -1"),
        ("case when :zy > 0 and (1 / :zy) < 0 then (1 / :zy) else 1 end", "int 1"),
        ("null and 1 / 0 = 0", "null"),
        ("case when true then 1 when 1 / 0 = 0 then 2 end", "int 1"),
    ]);
}

#[test]
fn hashes_and_permutations_use_the_default_seed() {
    all_are_worth(&[
        ("hash(10, 5432)", "int -5817877081768721676"),
        ("hash_murmur2(10, 5432)", "int -5817877081768721676"),
        ("hash_fnv1a(10, 5432)", "int -7793829335365542153"),
        ("hash(10) = hash(10, 77)", "boolean true"),
        ("permute(3, 100) = permute(3, 100, :default_seed)", "boolean true"),
        (
            "permute(0, 5) + permute(1, 5) + permute(2, 5) + permute(3, 5) + permute(4, 5) = 10",
            "boolean true",
        ),
        ("permute(0, 2, 5433)", "int 1"),
        ("permute(9, 1)", "int 0"),
    ]);
}

#[test]
fn random_functions_draw_in_the_order_of_evaluation() {
    let mut client = Client::new(&[]);
    assert_eq!(client.shown("random(10, 19)"), "int 17");
    assert_eq!(client.shown("random_exponential(100, 199, 10.0)"), "int 104");
    assert_eq!(client.shown("random_gaussian(1000, 1999, 10.0)"), "int 1498");
    assert_eq!(client.shown("random_zipfian(1, 9, 1.3)"), "int 3");
    // pgbench evaluates the right side of > first.
    let ints = |values: &[i64]| values.iter().map(|&int| Value::Int(int)).collect::<Vec<_>>();
    for (text, order) in [
        ("debug(1) > debug(2)", ints(&[2, 1])),
        ("(debug(1) >= debug(2)) IS NULL", ints(&[2, 1])),
        ("debug(1) < debug(2)", ints(&[1, 2])),
        ("case when debug(3) > debug(4) then 1 end", ints(&[4, 3])),
        ("debug(1) + debug(2) * debug(3)", ints(&[1, 2, 3])),
    ] {
        client.shown.clear();
        client.shown(text);
        assert_eq!(client.shown, order, "{text}");
    }
}

#[test]
fn precedence_equals_that_of_pgbenchs_grammar() {
    let table = [
        ("1 + 2 * 3", "(1 + (2 * 3))"),
        ("1 - 2 - 3", "((1 - 2) - 3)"),
        ("1 | 2 + 3", "(1 | (2 + 3))"),
        ("1 | 2 & 3 # 4", "(((1 | 2) & 3) # 4)"),
        ("1 << 2 + 3 < 4", "((1 << (2 + 3)) < 4)"),
        ("- 1 * 2", "((- 1) * 2)"),
        ("~ 1 + 2 | 3", "((~ (1 + 2)) | 3)"),
        ("2 * ~ 1 + 3", "(2 * (~ (1 + 3)))"),
        ("- ~ 1 + 3", "(- (~ (1 + 3)))"),
        ("not true and false or null", "(((NOT TRUE) AND FALSE) OR NULL)"),
        ("true or false and null", "(TRUE OR (FALSE AND NULL))"),
        ("not 1 = 2", "(NOT (1 = 2))"),
        ("not :x is null", "(NOT (:x IS NULL))"),
        ("1 = 2 is not true", "(NOT ((1 = 2) IS TRUE))"),
        ("1 + 2 isnull", "((1 + 2) IS NULL)"),
        ("1 is null = 2", "((1 IS NULL) = 2)"),
        ("1 > 2", "(2 < 1)"),
        ("1 >= 2 and 3 > 4", "((2 <= 1) AND (4 < 3))"),
        ("1 < not 2 < 3", "(1 < (NOT (2 < 3)))"),
        ("1 * not 2 = 3 and true", "((1 * (NOT (2 = 3))) AND TRUE)"),
        ("hash(1)", "hash(1, :default_seed)"),
        ("pow(1,2) % mod(3,4)", "(pow(1, 2) % mod(3, 4))"),
        ("case when 1 then 2 end", "CASE WHEN 1 THEN 2 ELSE NULL END"),
        ("+ + 1", "1"),
        ("- -9223372036854775808", "(- -9223372036854775808)"),
    ];
    for (text, expected) in table {
        let mut client = Client::new(&[]);
        assert_eq!(client.parse(text).text(&client.names), expected, "{text}");
    }
}
