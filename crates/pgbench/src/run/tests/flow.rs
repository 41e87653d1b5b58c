//! Control flow: executed commands and their order.

use super::*;

fn steps(text: &str) -> Vec<(usize, String)> {
    Run::new(text, &[("foo", "7")]).through(Protocol::Extended).unwrap()
}

fn sql(steps: &[(usize, String)]) -> Vec<&str> {
    steps.iter().map(|(_, step)| step.as_str()).collect()
}

#[test]
fn exactly_one_branch_is_taken() {
    for value in 0..5 {
        let text = format!(
            "\\set x {value}\n\\if :x = 0\nzero;\n\\elif :x = 1\none;\n\\if :x = 1 / 0\nno;\n\\endif\n\\elif :x = 2\ntwo;\n\\else\nmany;\n\\endif\nend;"
        );
        if value == 1 {
            // The inner condition is evaluated only in the branch that is taken.
            assert!(Run::new(&text, &[]).through(Protocol::Simple).is_err());
            continue;
        }
        let expected = [["zero;", "end;"], ["one;", "end;"], ["two;", "end;"], ["many;", "end;"]];
        assert_eq!(sql(&steps(&text)), expected[value.min(3)], "{value}");
    }
}

#[test]
fn conditions_nest_and_else_is_optional() {
    let text = "\\if 0\nno;\n\\if 1\nno;\n\\else\nno;\n\\endif\n\\elif 0\nno;\n\\endif\n\\if null\nno;\n\\endif\n\\if 0.5\nyes;\n\\if false\nno;\n\\else\ntoo;\n\\endif\n\\else\nno;\n\\endif\n";
    assert_eq!(sql(&steps(text)), ["yes;", "too;"]);
}

#[test]
fn an_elif_after_a_taken_branch_is_not_evaluated() {
    assert_eq!(
        sql(&steps("\\if 1\nyes;\n\\elif 1 / 0\nno;\n\\elif 1\nno;\n\\else\nno;\n\\endif\n")),
        ["yes;"]
    );
}

#[test]
fn sleep_times_are_converted_to_microseconds() {
    let text = "\\set one 1.0\n\\set zero 0\n\\set text 5\n\\sleep :one ms\n\\sleep 100 us\n\\sleep 0 s\n\\sleep :zero\n\\sleep :foo\n\\sleep -5";
    let expected = ["Sleep(1000)", "Sleep(100)", "Sleep(0)", "Sleep(0)", "Sleep(7000000)", "Sleep(0)"];
    assert_eq!(sql(&steps(text)), expected);
}

#[test]
fn shell_commands_are_joined_with_their_variables() {
    assert_eq!(sql(&steps("\\shell echo  :foo ::foo a:foo\n\\setshell x :foo")), ["echo 7 :foo a:foo", "7"]);
}

#[test]
fn pipelines_start_synchronise_and_end() {
    let text = "\\startpipeline\n\\endpipeline\n\\startpipeline\nselect :foo;\n\\syncpipeline\nselect 2;\n\\endpipeline\n";
    let expected = [
        "StartPipeline",
        "EndPipeline",
        "StartPipeline",
        "select 7;",
        "SyncPipeline",
        "select 2;",
        "EndPipeline",
    ];
    assert_eq!(sql(&steps(text)), expected);
}

#[test]
fn a_retry_with_a_restored_generator_draws_the_same_numbers() {
    let text = "\\set delta random(-5000, 5000)\nupdate xy set y = y + :delta";
    let mut run = Run::new(text, &[]);
    let generator = run.client.random;
    let first = run.through(Protocol::Simple).unwrap();
    let second = run.through(Protocol::Simple).unwrap();
    assert_ne!(first, second);
    run.client.random = generator;
    assert_eq!(run.through(Protocol::Simple).unwrap(), first);
}

#[test]
fn definitions_override_pgbenchs_own_variables() {
    let text = "select :scale, :client_id, :random_seed, :default_seed;";
    let definitions = [("scale", "9"), ("client_id", "a"), ("random_seed", "b"), ("default_seed", "c")];
    let own = Run::new(text, &[]).through(Protocol::Simple).unwrap();
    assert!(own[0].1.starts_with("select 1, 0, 5432, "), "{own:?}");
    let given = Run::new(text, &definitions).through(Protocol::Simple).unwrap();
    assert_eq!(given[0].1, "select 9, a, b, c;");
}

#[test]
fn every_client_has_its_number_and_its_generator() {
    let mut scripts = Scripts::default();
    scripts.add("s", b"select :client_id", 1).unwrap();
    let startup = Startup::new(&mut scripts.names, &[], 1, 1, 3, 2).unwrap();
    let (mut second, third) = (startup.client(1), startup.client(2));
    assert_ne!(second.random, third.random);
    assert_eq!(startup.threads().len(), 2);
    let slot = scripts.names.find(b"client_id").unwrap();
    assert_eq!(second.variables.value(slot, &scripts.names), Ok(Value::Int(1)));
}

/// The texts that a client sends in 40 transactions of a script with `\sample`.
fn sampled(values: &[&str]) -> Result<Vec<String>, Abort> {
    let values: Vec<_> = values.iter().map(|&value| value.to_owned()).collect();
    let samples = [("t.c frequency".to_owned(), values.into())].into_iter().collect();
    let mut scripts = Scripts::with_samples(samples);
    let text = "\\SAMPLE c From t.c \\\n frequency\nselect :c;";
    scripts.add("s.sql", text.as_bytes(), 1).unwrap();
    let client = Startup::new(&mut scripts.names, &[], 1, 5432, 1, 1).unwrap().client(0);
    let mut run = Run { scripts, client, shown: Vec::new() };
    (0..40).map(|_| Ok(run.through(Protocol::Simple)?.remove(0).1)).collect()
}

#[test]
fn sampled_values_are_drawn_by_the_generator_of_the_client() {
    let drawn = sampled(&["1", "'it''s'", "-3"]).unwrap();
    assert_eq!(drawn, sampled(&["1", "'it''s'", "-3"]).unwrap());
    for expected in ["select 1;", "select 'it''s';", "select -3;"] {
        assert!(drawn.contains(&expected.to_owned()), "{drawn:?}");
    }
    let aborted = sampled(&[]).unwrap_err();
    assert!(aborted.messages[0].ends_with("no values of t.c frequency"), "{aborted:?}");
}
