//! Control thread, with a scripted worker thread.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;

use serde_json::{Value, json};

use super::stage::{MS, OneKind};
use crate::any_workload::erase;
use crate::control::Control;
use crate::event_writer::Events;
use crate::messages::{Command, Drained, ErrorCounts, Input, Report};
use crate::record::{Counts, Histogram};
use crate::spec::Spec;
use reactor::{Clock, Nanos, Reactor, Usage, mailbox};

/// Response of a thread, by its number, to a command. Only the response advances the clock.
type HandleCommand = fn(u32, &Command, &AtomicU64) -> Vec<Input>;

/// The clients of a thread have completed their shares.
fn done(at: u64) -> Input {
    Input::Report(Report::Done { at: Nanos(at) })
}

fn drained(at: u64) -> Input {
    drained_of(0, at, 0)
}

/// A thread's share of a target is drained, with this CPU time.
fn drained_of(target: usize, at: u64, cpu_ns: u64) -> Input {
    let (totals, latency) = (vec![Counts::default()], Histogram::default());
    let (measured, used) = (totals.clone(), Usage { user: Nanos(cpu_ns), system: Nanos::ZERO });
    let drained =
        Drained { totals, measured, counters: Vec::new(), latency, at: Nanos(at), abandoned: 0, used };
    Input::Report(Report::Drained { target, drained })
}

/// An input without meaning in a slice, which wakes the control thread.
fn nudge() -> Input {
    Input::Report(Report::Connected(0))
}

/// Results of a slice.
struct Conducted {
    /// Commands to the first thread.
    commands: Vec<&'static str>,
    /// Events of the slice, including the last one.
    slices: Vec<Value>,
    slice: Value,
    unfinished: Vec<usize>,
}

/// Drives one measured slice of 20 ms, or of one transaction, with two threads and intervals of 1 ms.
fn conduct(transactions: Option<u64>, handle_command: HandleCommand) -> Conducted {
    conduct_as("measure", transactions, handle_command)
}

fn conduct_as(role: &str, transactions: Option<u64>, handle_command: HandleCommand) -> Conducted {
    conduct_slice(
        &json!({"target": 0, "role": role, "duration_s": 0.02, "transactions": transactions}),
        handle_command,
    )
}

fn conduct_slice(slice: &Value, handle_command: HandleCommand) -> Conducted {
    let targets =
        [json!({"name": "a", "conninfo": {"user": "u"}}), json!({"name": "b", "conninfo": {"user": "u"}})];
    let spec = json!({"targets": targets, "workload": {}, "clients": 2, "threads": 2,
        "seed": 1, "retries_max": 0, "discard_s": 0, "interval_s": 0.001, "connect_timeout_s": 1, "drain_timeout_s": 60,
        "slices": [slice]});
    let spec = Spec::read(&spec.to_string()).expect("sound");
    let workloads = [0, 1].map(|_| erase(OneKind));
    let (sender, inputs) = mpsc::channel();
    let time = Arc::new(AtomicU64::new(0));
    let mut written = Vec::new();
    let mut control = Control {
        spec: &spec,
        workloads: &workloads,
        clock: Clock::Fake(Arc::clone(&time)),
        inputs,
        threads: Vec::new(),
        servers: Vec::new(),
        events: Events::new(&mut written),
        totals: vec![Vec::new(); 2],
        measured: vec![Vec::new(); 2],
        counters: vec![Vec::new(); 2],
        unfinished: Vec::new(),
        left_out: Vec::new(),
        is_warm: false,
        errors: ErrorCounts::default(),
    };
    let commands = thread::scope(|scope| {
        let (sender, time) = (&sender, &*time);
        let mut threads = Vec::new();
        for number in 0..2 {
            let (commands, letters) = mailbox().expect("a mailbox");
            control.threads.push(commands);
            threads.push(scope.spawn(move || {
                let reactor = Reactor::new(Clock::monotonic()).expect("a loop");
                let mut seen = Vec::new();
                let serve = letters.serve(&reactor, |command: Command| {
                    seen.push(name(&command));
                    for input in handle_command(number, &command, time) {
                        sender.send(input).expect("a control thread");
                    }
                    !matches!(command, Command::Finish)
                });
                reactor.block_on(serve).expect("a loop").expect("orders");
                seen
            }));
        }
        drop(control.slice(0, &spec.slices[0], None)); // A stopped slice returns the reason again, which its event contains.
        for thread in &control.threads {
            thread.send(Command::Finish).expect("a thread");
        }
        threads.into_iter().map(|thread| thread.join().expect("its end")).next().expect("the first")
    });
    let unfinished = std::mem::take(&mut control.unfinished);
    let events = String::from_utf8(written).expect("text");
    let events = events.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let slices: Vec<Value> = events.filter(|event| event["event"] == "slice").collect();
    let slice = slices.last().expect("an event").clone();
    Conducted { commands, slices, slice, unfinished }
}

fn name(command: &Command) -> &'static str {
    match command {
        Command::Calibrate(_) => "calibrate",
        Command::Keep(_) => "keep",
        Command::Open(_) => "open",
        Command::Publish => "publish",
        Command::Close => "close",
        Command::Abandon => "abandon",
        Command::Finish => "finish",
    }
}

impl Conducted {
    fn closed_ns(&self) -> u64 {
        self.slice["closed_ns"].as_u64().expect("an instant")
    }
}

#[test]
fn no_interval_is_requested_before_the_last_one_was_reported() {
    let conducted = conduct(None, |number, command, time| match (number, command) {
        (0, Command::Open(_)) => {
            time.store(MS, SeqCst);
            vec![nudge()]
        }
        (0, Command::Publish) => {
            time.store(5 * MS, SeqCst);
            vec![nudge(), Input::Stop]
        }
        (_, Command::Close) => vec![drained(5 * MS)],
        _ => vec![],
    });
    assert_eq!(conducted.commands, ["open", "publish", "close", "finish"]);
}

#[test]
fn intervals_continue_when_all_threads_have_reported() {
    let conducted = conduct(None, |number, command, time| match command {
        Command::Open(_) if number == 0 => {
            time.store(MS, SeqCst);
            vec![nudge()]
        }
        Command::Publish => {
            let (totals, latency) = (vec![Counts::default()], Histogram::default());
            if number == 0 {
                time.fetch_add(10 * MS, SeqCst);
            }
            vec![Input::Report(Report::Interval { target: 0, totals, latency })]
        }
        Command::Close => vec![drained(21 * MS)],
        _ => vec![],
    });
    assert_eq!(conducted.commands, ["open", "publish", "publish", "close", "finish"]);
    assert_eq!(conducted.slice["ended_by"], "time");
}

#[test]
fn a_slice_ends_when_the_last_thread_is_done() {
    let conducted = conduct(Some(1), |number, command, time| match command {
        Command::Open(_) => {
            time.store(5 * MS, SeqCst);
            vec![done(3 * MS + u64::from(number))]
        }
        Command::Close => vec![drained(5 * MS)],
        _ => vec![],
    });
    assert_eq!((conducted.closed_ns(), &conducted.slice["ended_by"]), (3 * MS + 1, &json!("transactions")));
    assert!(conducted.unfinished.is_empty());
}

#[test]
fn a_share_completed_after_the_limit_was_ended_by_time() {
    let conducted = conduct(Some(1), |_, command, time| match command {
        Command::Open(_) => {
            time.store(20 * MS, SeqCst);
            vec![nudge()]
        }
        Command::Close => vec![done(20 * MS + 1), drained(20 * MS + 1)],
        _ => vec![],
    });
    assert_eq!((conducted.closed_ns(), &conducted.slice["ended_by"]), (20 * MS, &json!("time")));
    assert_eq!(conducted.unfinished, [0]);
}

#[test]
fn a_slice_waits_for_all_its_threads() {
    let conducted = conduct(Some(1), |number, command, time| match command {
        Command::Open(_) if number == 0 => {
            time.store(20 * MS, SeqCst);
            vec![done(MS), nudge()]
        }
        Command::Close => vec![drained(20 * MS)],
        _ => vec![],
    });
    assert_eq!((conducted.closed_ns(), &conducted.slice["ended_by"]), (20 * MS, &json!("time")));
    assert_eq!(conducted.unfinished, [0]);
}

#[test]
fn a_stop_command_ends_a_slice() {
    let conducted = conduct(Some(1), |_, command, time| match command {
        Command::Open(_) => {
            time.store(MS, SeqCst);
            vec![Input::Stop]
        }
        Command::Close => vec![drained(MS)],
        _ => vec![],
    });
    assert_eq!((conducted.closed_ns(), &conducted.slice["ended_by"]), (MS, &json!("stop")));
    assert_eq!(conducted.unfinished, [0]);
}

#[test]
fn after_a_stop_transactions_in_flight_are_abandoned_before_the_drain_timeout() {
    let conducted = conduct(None, |number, command, time| match command {
        Command::Open(_) if number == 0 => {
            time.store(MS, SeqCst);
            vec![Input::Stop]
        }
        // A silent server: nothing ends. The drain timeout of this run is 60 s.
        Command::Close if number == 0 => {
            time.store(MS + 2_000 * MS, SeqCst);
            vec![nudge()]
        }
        Command::Abandon => vec![drained(time.load(SeqCst))],
        _ => vec![],
    });
    let commands: Vec<_> = conducted.commands.iter().filter(|command| **command != "publish").collect();
    assert_eq!(commands, [&"open", &"close", &"abandon", &"finish"]);
    assert_eq!((conducted.closed_ns(), &conducted.slice["ended_by"]), (MS, &json!("stop")));
}

#[test]
fn a_measure_command_ends_a_warm_up_slice() {
    // Before the end of the first interval: only the command can end the slice.
    let conducted = conduct_as("warm-up", None, |_, command, time| match command {
        Command::Open(_) => {
            time.store(MS / 2, SeqCst);
            vec![Input::Measure]
        }
        Command::Close => vec![drained(MS / 2)],
        _ => vec![],
    });
    assert_eq!((conducted.closed_ns(), &conducted.slice["ended_by"]), (MS / 2, &json!("measure")));
}

#[test]
fn a_measure_command_does_not_end_a_measured_slice() {
    let conducted = conduct(None, |_, command, time| match command {
        Command::Open(_) => {
            time.store(MS, SeqCst);
            vec![Input::Measure]
        }
        // The command has not closed anything, so time continues.
        Command::Publish => {
            time.store(20 * MS, SeqCst);
            vec![nudge()]
        }
        Command::Close => vec![drained(time.load(SeqCst))],
        _ => vec![],
    });
    assert_eq!((conducted.closed_ns(), &conducted.slice["ended_by"]), (20 * MS, &json!("time")));
}

#[test]
fn a_slice_of_two_targets_is_drained_when_both_are_with_separate_results() {
    let slice = json!({"targets": [0, 1], "role": "measure", "duration_s": 0.02});
    let conducted = conduct_slice(&slice, |number, command, time| match command {
        Command::Open(windows) => {
            assert_eq!(windows.iter().map(|window| window.target).collect::<Vec<_>>(), [0, 1]);
            assert_eq!((windows[0].opened, windows[0].closes), (windows[1].opened, windows[1].closes));
            time.store(20 * MS, SeqCst);
            vec![nudge()]
        }
        // Each thread has one target, and no work for the other.
        Command::Close => (0..2)
            .map(|target| {
                let is_own = target == number as usize;
                if is_own {
                    drained_of(target, 21 * MS + number as u64, 5)
                } else {
                    drained_of(target, 20 * MS, 0)
                }
            })
            .collect(),
        _ => vec![],
    });
    assert_eq!(conducted.commands, ["open", "close", "finish"]);
    let of = |slice: &Value| {
        let [opened, closed, drained] =
            ["opened_ns", "closed_ns", "drained_ns"].map(|key| slice[key].as_u64().expect("an instant"));
        (slice["target"].clone(), opened, closed, drained, slice["driver_cpu_ns"]["user"].clone())
    };
    let expected = [0, 1].map(|target| (json!(target), 0, 20 * MS, 21 * MS + target, json!(5)));
    assert_eq!(conducted.slices.iter().map(of).collect::<Vec<_>>(), expected);
}
