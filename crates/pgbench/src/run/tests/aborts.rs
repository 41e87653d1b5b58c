//! Errors that stop a client, with pgbench's messages.

use super::*;

const DEFINITIONS: [(&str, &str); 4] = [("foo", "bla"), ("empty", "x"), ("one", "1"), ("word", "of")];

fn messages(text: &str, protocol: Protocol) -> Vec<String> {
    Run::new(text, &DEFINITIONS).through(protocol).unwrap_err().messages
}

#[test]
fn errors_of_commands_are_followed_by_the_command() {
    let set = "evaluation of meta-command failed";
    let other = "execution of meta-command failed";
    let table = [
        ("\\set i 1/0", "division by zero", "0 (set)", set),
        ("select 1;\n\\SET i :nosuchvariable", "undefined variable \"nosuchvariable\"", "1 (SET)", set),
        ("\\if 1/0\n\\endif", "division by zero", "0 (if)", set),
        ("\\if 0\n\\elif 1/0\n\\endif", "division by zero", "1 (elif)", set),
        ("\\set . 1", "set: invalid variable name: \".\"", "0 (set)", "assignment of meta-command failed"),
        ("\\set 1a 1", "set: invalid variable name: \"1a\"", "0 (set)", "assignment of meta-command failed"),
        ("\\set i :foo + 1", "malformed variable \"foo\" value: \"bla\"", "0 (set)", set),
        ("\\sleep :nosuchvariable", "sleep: undefined variable \"nosuchvariable\"", "0 (sleep)", other),
        ("\\sleep :word ms", "sleep: invalid sleep time \"of\" for variable \"word\"", "0 (sleep)", other),
        (
            "\\shell echo ::foo :nosuchvariable",
            "echo: undefined variable \":nosuchvariable\"",
            "0 (shell)",
            other,
        ),
        ("\\setshell x :nix", ":nix: undefined variable \":nix\"", "0 (setshell)", other),
    ];
    for (text, message, command, reason) in table {
        let last = format!("client 0 aborted in command {command} of script 0; {reason}");
        assert_eq!(messages(text, Protocol::Simple), [message.to_owned(), last], "{text}");
    }
}

#[test]
fn an_empty_text_has_no_message() {
    let mut run = Run::new("\\set i :empty", &DEFINITIONS);
    let slot = run.scripts.names.find(b"empty").unwrap();
    run.client.variables.set_text(slot, b"");
    let abort = run.through(Protocol::Simple).unwrap_err();
    assert_eq!(
        abort.messages,
        ["client 0 aborted in command 0 (set) of script 0; evaluation of meta-command failed"]
    );
}

#[test]
fn pipeline_commands_are_checked() {
    use Protocol::{Extended, Prepared, Simple};
    let table = [
        (
            "\\startpipeline\n",
            Simple,
            "0 (startpipeline)",
            "cannot use pipeline mode with the simple query protocol",
        ),
        ("\\startpipeline\n\\startpipeline", Extended, "1 (startpipeline)", "already in pipeline mode"),
        ("\\endpipeline", Prepared, "0 (endpipeline)", "not in pipeline mode"),
        ("\\syncpipeline", Simple, "0 (syncpipeline)", "not in pipeline mode"),
        (
            "\\startpipeline\nselect 1 \\gset f\n\\endpipeline",
            Extended,
            "1 (gset)",
            "\\gset is not allowed in pipeline mode",
        ),
        (
            "\\startpipeline\nselect 1 \\aset\n\\endpipeline",
            Extended,
            "1 (aset)",
            "\\aset is not allowed in pipeline mode",
        ),
    ];
    for (text, protocol, command, reason) in table {
        let last = format!("client 0 aborted in command {command} of script 0; {reason}");
        assert_eq!(messages(text, protocol), [last], "{text}");
    }
    let open = messages("\\startpipeline\nselect 1;", Extended);
    assert_eq!(open, ["client 0 aborted: end of script reached with pipeline open"]);
    // The next script starts without an open pipeline.
    let mut run = Run::new("\\startpipeline\n", &[]);
    assert!(run.through(Extended).is_err() && run.client.in_pipeline());
    run.client.begin(0);
    assert!(!run.client.in_pipeline());
}

#[test]
fn shell_commands_have_at_most_255_bytes() {
    let text = |bytes: usize| format!("\\shell {}", "x".repeat(bytes));
    assert_eq!(Run::new(&text(254), &[]).through(Protocol::Simple).unwrap().len(), 1);
    let messages = messages(&text(255), Protocol::Simple);
    assert!(messages[0].ends_with(": shell command is too long"), "{messages:?}");
}

#[test]
fn definitions_have_a_name_and_a_value() {
    let split = |option: &'static str| split_definition(option).map_err(|error| error.to_string());
    assert_eq!(split("a=b=c"), Ok(("a", "b=c")));
    for wrong in ["foobla", "=1", "a="] {
        assert_eq!(split(wrong), Err(format!("invalid variable definition: \"{wrong}\"")));
    }
    assert_eq!(split("1a=2"), Err("option: invalid variable name: \"1a\"".into()));
}
