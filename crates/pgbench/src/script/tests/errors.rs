//! Script errors, identical to those of pgbench 15 after `pgbench: error: `.

use super::*;
use crate::script::builtin::Builtin;
use crate::script::weight::split_weight;

fn refused(text: &str) -> String {
    Scripts::default().add("s.sql", text.as_bytes(), 1).unwrap_err().to_string()
}

fn all_are_refused(table: &[(&str, &str)]) {
    for (text, message) in table {
        assert_eq!(refused(text), *message, "{text:?}");
    }
}

#[test]
fn a_caret_may_be_at_a_large_column() {
    let blanks = " ".repeat(70_000);
    let told = refused(&format!("\\set x 1{blanks}$"));
    assert!(told.ends_with(&format!("\n        {blanks}^ error found here")), "{}", &told[..60]);
}

#[test]
fn invalid_expressions_are_rejected_with_line_and_caret() {
    all_are_refused(&[
        (
            "\\set i 1 +\n",
            "s.sql:1: syntax error in command \"set\"\n\\set i 1 +\n          ^ error found here",
        ),
        ("\\set i 1 +", "s.sql:1: syntax error in command \"set\"\n\\set i 1 +\n         ^ error found here"),
        ("\\set i", "s.sql:1: syntax error in command \"set\"\n\\set i\n     ^ error found here"),
        (
            "\\set i ; ;\nselect 1;",
            "s.sql:1: unexpected character (;) in command \"set\"\n\\set i ; ;\n         ^ error found here",
        ),
        (
            "\\SET i 1 + ) ;\n",
            "s.sql:1: unexpected character (;) in command \"SET\"\n\\SET i 1 + ) ;\n             ^ error found here",
        ),
        (
            "\\set i 1 - \\\n  ) + 2\nselect",
            "s.sql:1: syntax error in command \"set\"\n\\set i 1 - \\\n  ) + 2\n               ^ error found here",
        ),
        (
            "select 1\n\\set a\\\n 1 +\n",
            "s.sql:2: syntax error in command \"set\"\n\\set a\\\n 1 +\n            ^ error found here",
        ),
        (
            "select 1;\n\n  \\set i é (\n",
            "s.sql:3: unexpected function name (é) in command \"set\"\n\\set i é (\n        ^ error found here",
        ),
        ("\\ set i ,\n", "s.sql:1: syntax error in command \"set\"\n\\ set i ,\n        ^ error found here"),
        ("\\if\n\\endif\n", "s.sql:1: syntax error in command \"if\"\n\\if\n   ^ error found here"),
        (
            "\\if 0\n\\elif +\n\\endif\n",
            "s.sql:2: syntax error in command \"elif\"\n\\elif +\n       ^ error found here",
        ),
        (
            "\\set i least()\n",
            "s.sql:1: at least one argument expected (least) in command \"set\"\n\\set i least()\n             ^ error found here",
        ),
    ]);
}

#[test]
fn invalid_arguments_are_rejected() {
    all_are_refused(&[
        ("\\set", "s.sql:1: missing argument in command \"set\""),
        ("\\sleep\n", "s.sql:1: missing argument in command \"sleep\"\n\\sleep"),
        (
            "\\sleep too many args\n",
            "s.sql:1: too many arguments in command \"sleep\"\n\\sleep too many args\n                ^ error found here",
        ),
        (
            "\\sleep 1 week",
            "s.sql:1: unrecognized time unit, must be us, ms or s (week) in command \"sleep\"\n\\sleep 1 week\n         ^ error found here",
        ),
        (
            "\\sleep 1\\\n week\n",
            "s.sql:1: unrecognized time unit, must be us, ms or s (week) in command \"sleep\"\n\\sleep 1\\\n week\n           ^ error found here",
        ),
        (
            "\\sleep 1d\n",
            "s.sql:1: unrecognized time unit, must be us, ms or s (d) in command \"sleep\"\n\\sleep 1d\n        ^ error found here",
        ),
        (
            "\\sleep x\n",
            "s.sql:1: invalid sleep time, must be an integer (x) in command \"sleep\"\n\\sleep x\n       ^ error found here",
        ),
        (
            "\\sleep +1us 2\n",
            "s.sql:1: invalid sleep time, must be an integer (+1us) in command \"sleep\"\n\\sleep +1us 2\n       ^ error found here",
        ),
        ("\\setshell a\n", "s.sql:1: missing argument in command \"setshell\"\n\\setshell a"),
        ("\\shell\n", "s.sql:1: missing command in command \"shell\"\n\\shell"),
        ("\\if 0\n\\else BAD\n\\endif", "s.sql:2: unexpected argument in command \"else\"\n\\else BAD"),
        ("\\if 0\n\\endif BAD\n", "s.sql:2: unexpected argument in command \"endif\"\n\\endif BAD"),
        ("\\startpipeline x", "s.sql:1: unexpected argument in command \"startpipeline\"\n\\startpipeline x"),
        ("\\syncpipeline x", "s.sql:1: unexpected argument in command \"syncpipeline\"\n\\syncpipeline x"),
        ("\\endpipeline x", "s.sql:1: unexpected argument in command \"endpipeline\"\n\\endpipeline x"),
        ("\\nosuch cmd\n", "s.sql:1: invalid command in command \"nosuch\"\n\\nosuch cmd"),
        ("\\\\foo\n", "s.sql:1: invalid command in command \"\\foo\"\n\\\\foo"),
        ("select 1 \\gset a b", "s.sql:1: too many arguments in command \"gset\"\n\\gset a b"),
        ("\\gset", "s.sql:1: \\gset must follow an SQL command"),
        ("\\aset", "s.sql:1: \\gset must follow an SQL command"),
        ("\\set i +1\n\\gset", "s.sql:2: \\gset must follow an SQL command (\\set i +1)"),
        ("select 1 as i \\gset\n\\gset", "s.sql:2: \\gset must follow an SQL command"),
    ]);
    let many = format!("\\shell echo {}", vec!["arg"; 255].join(" "));
    assert_eq!(refused(&many), "s.sql:1: too many arguments in command \"shell\"");
    assert_eq!(read(&many[..many.len() - 4]).len(), 1);
}

#[test]
fn samples_are_a_command_of_the_engine_and_name_a_variable_and_a_source() {
    let wrong = "\\sample x FROM t.c";
    assert_eq!(refused(wrong), format!("s.sql:1: invalid command in command \"sample\"\n{wrong}"));
    let table = [
        ("\\sample", "s.sql:1: missing argument in command \"sample\"\n\\sample"),
        ("\\sample x FROM", "s.sql:1: missing argument in command \"sample\"\n\\sample x FROM"),
        (
            "\\sample 1x FROM t.c",
            "s.sql:1: invalid variable name (1x) in command \"sample\"\n\\sample 1x FROM t.c\n        ^ error found here",
        ),
        (
            "\\sample x of t.c",
            "s.sql:1: FROM expected (of) in command \"sample\"\n\\sample x of t.c\n          ^ error found here",
        ),
    ];
    for (text, message) in table {
        let mut scripts = Scripts::with_samples(Samples::new());
        let error = scripts.add("s.sql", text.as_bytes(), 1).unwrap_err();
        assert_eq!(error.to_string(), message, "{text:?}");
    }
}

#[test]
fn unmatched_conditional_commands_are_rejected() {
    let error = |command, what| format!("condition error in script \"s.sql\" command {command}: {what}");
    let table = [
        ("\\if 1", error(2, "\\if without matching \\endif")),
        ("\\elif 1", error(1, "\\elif without matching \\if")),
        ("select 1;\\else", error(2, "\\else without matching \\if")),
        ("\\endif", error(1, "\\endif without matching \\if")),
        ("\\if 1\n\\else\n\\elif 0\n\\endif", error(3, "\\elif after \\else")),
        ("\\if 1\n\\else\n\\else\n\\endif", error(3, "\\else after \\else")),
        ("\\if 1\n\\if 1\n\\else\n\\endif\n\\else", error(6, "\\if without matching \\endif")),
    ];
    for (text, message) in table {
        assert_eq!(refused(text), message, "{text:?}");
    }
}

#[test]
fn empty_too_large_and_too_many_scripts_are_rejected() {
    let empty = "empty command list for script \"s.sql\"";
    all_are_refused(&[
        ("", empty),
        ("  -- foo\n", empty),
        ("\\", empty),
        ("\\\n", empty),
        ("\0select 1", empty),
    ]);
    let mut scripts = Scripts::default();
    let large = vec![b' '; SCRIPT_BYTES_MAX + 1];
    assert!(
        scripts
            .add("x", &large, 1)
            .unwrap_err()
            .to_string()
            .contains("too large (maximum is 16777216 bytes)")
    );
    for _ in 0..SCRIPTS_MAX {
        scripts.add("x", b"select 1", 1).unwrap();
    }
    let error = scripts.add("x", b"select 1", 1).unwrap_err().to_string();
    assert_eq!(error, "at most 128 SQL scripts are allowed");
}

#[test]
fn statements_can_have_255_parameters_in_the_extended_protocol() {
    let sql = |count: usize| {
        let text = format!("SELECT LEAST({})", vec![":i"; count].join(", "));
        let Action::Sql(sql) = read(&text).remove(0).action else { panic!("{text}") };
        sql.extended().map(|extended| extended.parameters.len()).map_err(|error| error.to_string())
    };
    assert_eq!(sql(255), Ok(255));
    let error = sql(256).unwrap_err();
    assert!(
        error.starts_with("statement has too many arguments (maximum is 255): SELECT LEAST(:i, "),
        "{error}"
    );
}

#[test]
fn builtin_scripts_are_found_by_a_prefix_of_their_name() {
    let found =
        |prefix: &str| Builtin::find(prefix).map(|found| found.name).map_err(|error| error.to_string());
    for (prefix, name) in
        [("t", "tpcb-like"), ("si", "simple-update"), ("se", "select-only"), ("tpcb-like", "tpcb-like")]
    {
        assert_eq!(found(prefix), Ok(name));
    }
    let ambiguous = "ambiguous builtin name: 2 builtin scripts found for prefix \"s\"";
    assert_eq!(found("s"), Err(ambiguous.into()));
    assert_eq!(found("no-such-builtin"), Err("no builtin script found for name \"no-such-builtin\"".into()));
    assert!(Builtin::list().contains("      tpcb-like: <builtin: TPC-B (sort of)>\n"));
    assert!(
        found("se")
            .is_ok_and(|_| Builtin::find("se").unwrap().shown().starts_with("-- select-only: <builtin: s"))
    );
}

#[test]
fn weights_follow_the_last_at_sign() {
    let split = |option: &'static str| split_weight(option).map_err(|error| error.to_string());
    assert_eq!(split("a.sql"), Ok(("a.sql", 1)));
    assert_eq!(split("a@b.sql@12"), Ok(("a@b.sql", 12)));
    assert_eq!(split("a@0"), Ok(("a", 0)));
    assert_eq!(split("se@one"), Err("invalid weight specification: @one".into()));
    assert_eq!(split("se@"), Err("invalid weight specification: @".into()));
    assert_eq!(split("se@-1"), Err("weight specification out of range (0 .. 2147483647): -1".into()));
    assert_eq!(
        split("se@2147483648"),
        Err("weight specification out of range (0 .. 2147483647): 2147483648".into())
    );
}
