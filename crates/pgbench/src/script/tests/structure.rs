//! Parsed commands.

use super::super::command::{Shell, ShellWord, Sleep, SleepTime};
use super::super::sql::Store;
use super::*;
use crate::random::Streams;
use crate::value::Value;
use crate::variables::Variables;

fn first_sql(text: &str) -> (Sql, Scripts) {
    let mut scripts = Scripts::default();
    scripts.add("s.sql", text.as_bytes(), 1).unwrap();
    let Action::Sql(sql) = scripts.all[0].commands[0].action.clone() else { panic!("{text}") };
    (sql, scripts)
}

#[test]
fn variables_are_replaced_in_place_or_by_parameters() {
    let text = "select /* :foo */ ':foo', :foo::int, a:::foo, :1a, :größe, :bar -- :foo\n, \\:foo:foo:";
    let (sql, scripts) = first_sql(text);
    let mut variables = Variables::default();
    let slot = |name: &str| scripts.names.find(name.as_bytes()).unwrap();
    variables.set_text(slot("foo"), b"+7");
    variables.set(slot("größe"), Value::Double(0.5));
    let mut out = b"> ".to_vec();
    sql.write_simple(&variables, &mut out);
    let simple = "> select /* +7 */ '+7', +7::int, a:::foo, :1a, 0.5, :bar -- +7\n, +7+7:";
    assert_eq!(String::from_utf8(out).unwrap(), simple);
    let extended = sql.extended().unwrap();
    let sent = "select /* $1 */ '$2', $3::int, a:::foo, :1a, $4, $5 -- $6\n, $7$8:";
    assert_eq!(String::from_utf8(extended.text).unwrap(), sent);
    let names: Vec<_> = extended.parameters.iter().map(|&slot| scripts.names.text(slot)).collect();
    assert_eq!(names, ["foo", "foo", "foo", "größe", "bar", "foo", "foo", "foo"]);
}

#[test]
fn gset_and_aset_belong_to_the_preceding_sql() {
    let store = |text: &str| first_sql(text).0.store;
    assert_eq!(store("select 1"), None);
    assert_eq!(store("select 1 \\gset"), Some(Store { every: false, prefix: vec![] }));
    assert_eq!(store("select 1\n\\GSET x_\n"), Some(Store { every: false, prefix: b"x_".to_vec() }));
    assert_eq!(store("select 1; \\aset"), Some(Store { every: true, prefix: vec![] }));
    assert_eq!(read("select 1 \\gset\nselect 2 \\aset\n").len(), 2);
}

#[test]
fn sleep_times_are_parsed_with_their_units() {
    let sleep = |text: &str| match read(text).remove(0).action {
        Action::Sleep(Sleep { time: SleepTime::Constant(time), unit_us, .. }) => (time, unit_us),
        other => panic!("{other:?}"),
    };
    let table = [
        ("\\sleep 100 us", (100, 1)),
        ("\\sleep 2ms", (2, 1000)),
        ("\\sleep 0 S", (0, 1_000_000)),
        ("\\sleep 3", (3, 1_000_000)),
        ("\\sleep -5", (-5, 1_000_000)),
        ("\\sleep -", (0, 1_000_000)),
        ("\\sleep 99999999999999999999us", (i64::MAX, 1)),
    ];
    for (text, expected) in table {
        assert_eq!(sleep(text), expected, "{text}");
    }
    let commands = read("\\sleep :one ms");
    assert!(matches!(
        commands[0].action,
        Action::Sleep(Sleep { time: SleepTime::Variable(_), unit_us: 1000, .. })
    ));
}

#[test]
fn shell_commands_are_split_into_words() {
    let mut commands = read("\\setshell another_one\\\n  echo \\\n    :one ::two \\:x");
    let Action::Shell(Shell { variable, words }) = commands.remove(0).action else { panic!() };
    assert!(variable.is_some());
    let literal = |text: &str| ShellWord::Literal(text.as_bytes().to_vec());
    assert!(matches!(words[1], ShellWord::Variable(_)));
    assert_eq!([&words[0], &words[2], &words[3]], [&literal("echo"), &literal(":two"), &literal("\\:x")]);
}

#[test]
fn conditions_have_their_jump_targets() {
    let commands =
        read("\\if 1\n\\if 2\n\\else\n\\endif\n\\elif 3\n\\elif 4\n\\else\n\\endif\n\\if 5\n\\endif");
    let places: Vec<_> = commands
        .iter()
        .filter_map(|command| match command.action {
            Action::If { otherwise, end, .. } => Some((otherwise, end)),
            Action::Else { end } => Some((0, end)),
            _ => None,
        })
        .collect();
    assert_eq!(places, [(4, 7), (2, 3), (0, 3), (5, 7), (6, 7), (0, 7), (9, 9)]);
}

#[test]
fn scripts_are_chosen_by_their_weights() {
    let mut scripts = Scripts::default();
    let mut prng = Streams::new(1, 1, 1, false).threads[0].choose;
    let untouched = prng;
    scripts.add("a", b"select 1", 2).unwrap();
    assert_eq!((scripts.choose(&mut prng), prng), (0, untouched));
    scripts.add("b", b"select 1", 0).unwrap();
    scripts.add("c", b"select 1", 1).unwrap();
    assert_eq!((scripts.weight(), scripts.scripts().len()), (Ok(3), 3));
    let mut counts = [0_u32; 3];
    (0..3000).for_each(|_| counts[scripts.choose(&mut prng)] += 1);
    // Binomial with mean 2000 and standard deviation 26.
    assert!((1850..2150).contains(&counts[0]) && counts[1] == 0, "{counts:?}");
}

#[test]
fn statements_are_numbered_over_all_scripts() {
    let mut scripts = Scripts::default();
    scripts.add("a", b"select 1; \\set x 1\nselect 2", 1).unwrap();
    scripts.add("b", b"select 3", 1).unwrap();
    let numbers: Vec<_> = scripts
        .all
        .iter()
        .flat_map(|script| &script.commands)
        .filter_map(|command| match &command.action {
            Action::Sql(sql) => Some(sql.prepared_name()),
            _ => None,
        })
        .collect();
    assert_eq!(numbers, ["P_0", "P_1", "P_2"]);
    assert_eq!(scripts.statements(), 3);
}

#[test]
fn weights_must_not_all_be_zero() {
    let mut scripts = Scripts::default();
    scripts.add("a", b"select 1", 0).unwrap();
    let error = scripts.weight().unwrap_err().to_string();
    assert_eq!(error, "total script weight must not be zero");
    assert_eq!(scripts.choose(&mut Prng::new(1)), 0);
}

#[test]
fn the_statements_of_a_pipeline_are_found() {
    let text = "select 1;\n\\startpipeline\nselect 2;\n\\set x 1\nselect 3;\n\\endpipeline\nselect 4;";
    let mut scripts = Scripts::default();
    scripts.add("a", text.as_bytes(), 1).unwrap();
    let numbers: Vec<_> = scripts.in_pipeline(0, 1).map(|sql| sql.number).collect();
    assert_eq!(numbers, [1, 2]);
    assert_eq!(scripts.in_pipeline(0, 99).count() + scripts.in_pipeline(9, 0).count(), 0);
}
