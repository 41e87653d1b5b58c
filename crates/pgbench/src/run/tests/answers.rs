//! Results of servers and shells.

use super::*;
use crate::script::sql::Store;

fn columns<'a>(names: &'a [&'a str]) -> impl Iterator<Item = &'a [u8]> + Clone {
    names.iter().map(|name| name.as_bytes())
}

#[test]
fn columns_are_mapped_to_the_variables_of_scripts() {
    let run = Run::new("select 3 as i3, 4 as i4 \\gset x_\nselect :x_i3;", &[]);
    let store = Store { every: false, prefix: b"x_".to_vec() };
    let (names, mut known) = (&run.scripts.names, Columns::default());
    let wanted = names.find(b"x_i3");
    assert!(wanted.is_some());
    for _ in 0..2 {
        assert_eq!(known.slots(&store, names, columns(&["i3", "i4"])), Ok(&[wanted, None][..]));
    }
    assert_eq!(known.slots(&store, names, columns(&["i4", "i3", "i4"])), Ok(&[None, wanted, None][..]));
    assert_eq!(known.slots(&store, names, columns(&["i4", "i3"])), Ok(&[None, wanted][..]));
    assert_eq!(known.slots(&store, names, columns(&[])), Ok(&[][..]));
}

#[test]
fn columns_with_invalid_names_abort_the_client() {
    let mut run = Run::new("select 1 \\gset\n", &[]);
    run.through(Protocol::Simple).unwrap();
    let store = Store { every: false, prefix: vec![] };
    let mut known = Columns::default();
    for name in ["?column?", "bad name!"] {
        let found = known.slots(&store, &run.scripts.names, columns(&["fine", name])).unwrap_err();
        assert_eq!(
            run.client.cannot_store(&store, 0, &found).messages,
            [
                format!("gset: invalid variable name: \"{name}\""),
                format!("client 0 script 0 command 0 query 0: error storing into variable {name}"),
            ]
        );
    }
    let message = "client 0 script 0 command 0 query 1: expected one row, got 2";
    assert_eq!(run.client.wrong_row_count(1, 2).messages, [message]);
}

#[test]
fn shell_output_is_an_integer_or_aborts_the_client() {
    let mut run = Run::new("\\setshell n cmd a\n\\set i :n", &[]);
    let Step::Shell(shell) = run.client.step(&run.scripts, Protocol::Simple, &mut |_| {}).unwrap() else {
        panic!()
    };
    let slot = shell.variable.unwrap();
    for (output, value) in [("1\n", 1), (" -7 \nmore", -7), ("+5", 5), ("\n", 0), ("4294967297\n", 1)] {
        run.client.take_shell_output(&run.scripts, shell, output.as_bytes()).unwrap();
        assert_eq!(run.client.variables.value(slot, &run.scripts.names), Ok(Value::Int(value)), "{output:?}");
    }
    let table = [
        ("", "cmd: could not read result of shell command"),
        ("one", "cmd: shell command must return an integer (not \"one\")"),
        ("1 2\n", "cmd: shell command must return an integer (not \"1 2\n\")"),
    ];
    for (output, message) in table {
        let abort = run.client.take_shell_output(&run.scripts, shell, output.as_bytes()).unwrap_err();
        let last = "client 0 aborted in command 0 (setshell) of script 0; execution of meta-command failed";
        assert_eq!(abort.messages, [message, last]);
    }
}

#[test]
fn setshell_rejects_an_invalid_name() {
    let mut run = Run::new("\\setshell . cmd", &[]);
    let Step::Shell(shell) = run.client.step(&run.scripts, Protocol::Simple, &mut |_| {}).unwrap() else {
        panic!()
    };
    let abort = run.client.take_shell_output(&run.scripts, shell, b"1").unwrap_err();
    assert_eq!(abort.messages[0], "setshell: invalid variable name: \".\"");
    assert!(abort.messages[1].ends_with("(setshell) of script 0; execution of meta-command failed"));
    let failed = run.client.shell_failed(&run.scripts, shell, "could not launch shell command");
    assert_eq!(failed.messages[0], "cmd: could not launch shell command");
}
