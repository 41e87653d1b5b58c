//! Execution of small scripts with a scripted server.

mod server;

use std::sync::Arc;

use server::Reply::{self, CopyIn, Done, Error, Rows};
use server::Server;

use super::{Program, ScriptRunner, Stop};
use crate::run::{Protocol, Startup};
use crate::script::Scripts;
use reactor::{Clock, Reactor, TransactionStatus};

/// Results of some attempts.
struct Played {
    /// Messages received by the server.
    received: Vec<String>,
    /// Result of each attempt: empty, or the error.
    ends: Vec<String>,
    /// Total duration in µs.
    took_us: u64,
}

fn program(text: &str, protocol: Protocol) -> Arc<Program> {
    let mut scripts = Scripts::default();
    scripts.add("s", text.as_bytes(), 1).expect("a script");
    let startup = Startup::new(&mut scripts.names, &[], 1, 7, 1, 1).expect("a start");
    Arc::new(Program::new(scripts, protocol, startup).expect("a program"))
}

/// Executes a script `attempts` times. Transactions with a serialization failure are retried.
fn play(text: &str, protocol: Protocol, replies: &[Reply], attempts: usize) -> Played {
    let program = program(text, protocol);
    let reactor = Reactor::new(Clock::fake()).expect("a loop");
    let server = Server::new(replies);
    let (mut connection, serve) = server.connect(&reactor);
    let mut runner = ScriptRunner::new(program, 0);
    let mut ends = Vec::new();
    let mut again = false;
    let main = async {
        for _ in 0..attempts {
            if !again {
                runner.begin(0);
            }
            let end = runner.attempt(&mut connection).await;
            again = matches!(&end, Err(Stop::Session(error)) if error.is_retryable());
            ends.push(match &end {
                Ok(()) => String::new(),
                Err(Stop::Session(error)) => error.to_string(),
                Err(Stop::Script(abort) | Stop::LeftOpen(abort)) => abort.messages.join("; "),
            });
            match end {
                Err(Stop::Session(error)) if error.is_fatal() => break,
                Err(_) => connection.recover().await.expect("a session that goes on"),
                Ok(()) => {}
            }
            assert_eq!(connection.transaction_status(), TransactionStatus::Idle);
        }
        reactor.now().0 / 1000
    };
    let took_us = reactor.run_concurrently(main, vec![Box::pin(serve)]).expect("a play to its end");
    let received = server.received.take();
    Played { received, ends, took_us }
}

const ONE_ROW: Reply = Rows(&["a", "b"], &[&["1", "-"]]);

#[test]
fn a_command_is_sent_with_the_messages_of_its_protocol() {
    let text = "\\set x 5\nselect :x, :y;\nselect 2;";
    let cases: [(Protocol, &[&str]); 3] = [
        (Protocol::Simple, &["Qselect 5, :y", "Qselect 2"]),
        (Protocol::Extended, &["P|select $1, $2", "B|5|null", "E", "S", "P|select 2", "B", "E", "S"]),
        (
            Protocol::Prepared,
            &["PP_0|select $1, $2", "S", "BP_0|5|null", "E", "S", "PP_1|select 2", "S", "BP_1", "E", "S"],
        ),
    ];
    for (protocol, expected) in cases {
        let played = play(text, protocol, &[Done], 1);
        assert_eq!(played.received, expected, "{protocol:?}");
        assert_eq!(played.ends, [""], "{protocol:?}");
    }
}

#[test]
fn a_statement_is_prepared_once() {
    let played = play("select 1;", Protocol::Prepared, &[Done], 3);
    assert_eq!(played.received, ["PP_0|select 1", "S", "BP_0", "E", "S", "BP_0", "E", "S", "BP_0", "E", "S"]);
}

#[test]
fn gset_and_aset_store_values_for_later_commands() {
    let cases: [(&str, &[Reply], &[&str]); 4] = [
        ("select 1 \\gset\nselect :a, :b", &[ONE_ROW, Done], &["Qselect 1", "Qselect 1,"]),
        ("select 1 \\gset p_\nselect :p_a", &[ONE_ROW, Done], &["Qselect 1", "Qselect 1"]),
        ("select 1 \\aset\nselect :a", &[Rows(&["a"], &[&["1"], &["2"]]), Done], &["Qselect 1", "Qselect 2"]),
        ("select 1 \\aset\nselect :a", &[Rows(&["a"], &[]), Done], &["Qselect 1", "Qselect :a"]),
    ];
    for (text, replies, expected) in cases {
        let played = play(text, Protocol::Simple, replies, 1);
        assert_eq!(
            (played.received, played.ends),
            (expected.iter().map(ToString::to_string).collect(), vec![String::new()]),
            "{text}"
        );
    }
    let played = play("select 1 \\gset\nselect :a", Protocol::Extended, &[ONE_ROW, Done], 1);
    assert_eq!(played.received[..5], ["P|select 1", "B", "D", "E", "S"]);
    assert_eq!(played.received[6], "B|1");
}

#[test]
fn errors_that_abort_a_script_have_pgbenchs_messages() {
    let two = Rows(&["a"], &[&["1"], &["2"]]);
    let cases: [(&str, Protocol, &[Reply], &str); 6] = [
        (
            "select 1 \\gset",
            Protocol::Simple,
            &[two],
            "client 0 script 0 command 0 query 0: expected one row, got 2",
        ),
        (
            "select 1 \\gset",
            Protocol::Simple,
            &[Done],
            "client 0 script 0 command 0 query 0: expected one row, got 0",
        ),
        (
            "select 1 \\gset",
            Protocol::Simple,
            &[Rows(&["?column?"], &[&["1"]])],
            "gset: invalid variable name: \"?column?\"; client 0 script 0 command 0 query 0: error storing into variable ?column?",
        ),
        (
            "begin;",
            Protocol::Simple,
            &[Done],
            "client 0 aborted: end of script reached without completing the last transaction",
        ),
        (
            "\\set x 1/0",
            Protocol::Simple,
            &[Done],
            "division by zero; client 0 aborted in command 0 (set) of script 0; evaluation of meta-command failed",
        ),
        (
            "\\startpipeline\nselect 1;",
            Protocol::Extended,
            &[Done],
            "client 0 aborted: end of script reached with pipeline open",
        ),
    ];
    for (text, protocol, replies, expected) in cases {
        let played = play(text, protocol, replies, 2);
        // The session is usable, also for the next transaction.
        assert_eq!(played.ends, [expected, expected], "{text}");
    }
}

#[test]
fn an_error_ends_the_transaction_and_a_retry_draws_the_same_numbers() {
    let text = "begin;\n\\set x random(1, 1000000)\nselect :x;\nend;";
    let played = play(text, Protocol::Simple, &[Done, Error("40001"), Done], 3);
    let [first, rest @ ..] = played.received.as_slice() else { unreachable!("nothing was sent") };
    assert_eq!(first, "Qbegin");
    let selects: Vec<_> = rest.iter().filter(|line| line.starts_with("Qselect")).collect();
    assert_eq!(rest[1], "QROLLBACK");
    assert_eq!(selects[0], selects[1], "the second attempt is the same transaction");
    assert_ne!(selects[1], selects[2], "the next transaction is another one");
    assert_eq!(played.ends, ["scripted (SQLSTATE 40001)", "", ""]);
}

#[test]
fn a_pipeline_is_sent_at_its_end_after_its_statements_are_prepared() {
    let text = "\\startpipeline\nselect 1;\nselect 2;\n\\syncpipeline\nselect 3;\n\\endpipeline\nselect 4;";
    let played = play(text, Protocol::Prepared, &[Done], 1);
    let prepared = ["PP_0|select 1", "S", "PP_1|select 2", "S", "PP_2|select 3", "S"];
    let piped = ["BP_0", "E", "BP_1", "E", "S", "BP_2", "E", "S"];
    assert_eq!(played.received[..6], prepared);
    assert_eq!(played.received[6..14], piped);
    assert_eq!(played.ends, [""]);
    // An error in the first part does not prevent the second one; both responses are read.
    let played = play(text, Protocol::Extended, &[Error("22012"), Done], 2);
    assert_eq!(played.ends, ["scripted (SQLSTATE 22012)", ""]);
}

#[test]
fn a_script_aborted_in_a_pipeline_has_sent_nothing_of_it() {
    let played =
        play("\\startpipeline\nselect 1;\n\\set x 1/0\n\\endpipeline", Protocol::Extended, &[Done], 2);
    assert_eq!(played.received, Vec::<String>::new());
    assert!(played.ends.iter().all(|end| end.starts_with("division by zero")), "{:?}", played.ends);
}

#[test]
fn copy_from_the_client_ends_the_session() {
    for protocol in [Protocol::Simple, Protocol::Extended, Protocol::Prepared] {
        let played = play("copy t from stdin;", protocol, &[CopyIn], 1);
        assert!(played.ends[0].contains("COPY is not supported"), "{:?}", played.ends);
    }
}

#[test]
fn sleep_does_not_block_other_clients() {
    let played = play("\\set t 3\n\\sleep :t ms\n\\sleep 20 us\nselect 1;", Protocol::Simple, &[Done], 2);
    assert_eq!(played.took_us, 2 * 3_020);
}

#[test]
fn the_longest_sleep_is_not_an_error() {
    let played = play("\\sleep 9223372036854775807 us\nselect 1;", Protocol::Simple, &[Done], 1);
    assert_eq!((played.ends[0].as_str(), played.took_us), ("", u64::MAX / 1000));
}

#[test]
fn a_script_without_sql_does_not_block_other_clients() {
    let program = program("\\set x 1", Protocol::Simple);
    let reactor = Reactor::new(Clock::fake()).expect("a loop");
    let (mut connection, serve) = Server::new(&[Done]).connect(&reactor);
    let mut runner = ScriptRunner::new(program, 0);
    let endless = async {
        loop {
            runner.begin(0);
            runner.attempt(&mut connection).await.expect("no error");
        }
    };
    let beside = reactor.sleep_until(reactor::Nanos(1000));
    reactor.run_concurrently(beside, vec![Box::pin(endless), Box::pin(serve)]).expect("an end");
}

/// Shells take real time: the clock is the kernel's.
#[test]
fn a_shell_command_prints_an_integer_or_aborts_the_transaction() {
    let cases = [
        ("\\set i 4\n\\setshell x expr :i + 38\nselect :x;", vec!["Qselect 42"], ""),
        (
            "\\shell exit 3",
            vec![],
            "exit: could not launch shell command; \
             client 0 aborted in command 0 (shell) of script 0; execution of meta-command failed",
        ),
        (
            "\\setshell x echo one",
            vec![],
            "echo: shell command must return an integer (not \"one\n\"); \
             client 0 aborted in command 0 (setshell) of script 0; execution of meta-command failed",
        ),
    ];
    for (text, received, expected) in cases {
        let reactor = Reactor::new(Clock::monotonic()).expect("a loop");
        let server = Server::new(&[Done]);
        let (mut connection, serve) = server.connect(&reactor);
        let mut runner = ScriptRunner::new(program(text, Protocol::Simple), 0);
        runner.begin(0);
        let attempt = runner.attempt(&mut connection);
        let end = reactor.run_concurrently(attempt, vec![Box::pin(serve)]).expect("an end");
        let end = match end {
            Err(Stop::Script(abort) | Stop::LeftOpen(abort)) => abort.messages.join("; "),
            end => end.map(|()| String::new()).expect("no error of the session"),
        };
        assert_eq!(
            (end.as_str(), server.received.take()),
            (expected, received.iter().map(ToString::to_string).collect())
        );
    }
}
