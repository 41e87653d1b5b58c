//! Command line of the engine: `pgdyno-engine drive`, `load`, `check`, `disk`, `version`. See
//! `docs/reference/engine-protocol.md`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, LineWriter};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;

use clap::{Parser, Subcommand};
use pgbench::initialise;
use pgdyno_engine::drive::{self, End, Input};
use pgdyno_engine::{check, load};
use reactor::{Nanos, catch_termination, take_streams};
use serde_json::{Value, json};

/// Load generator and loader of pgdyno.
#[derive(Parser)]
#[command(name = "pgdyno-engine")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run clients against servers. Reads a specification from standard input, writes events to standard output
    Drive,
    /// Create and load the tables of a workload. Reads a specification from standard input, writes events to standard output
    Load,
    /// Check pgbench scripts without a server. Reads them from standard input, writes the result to standard output
    Check,
    /// Serve a disk whose power can be cut. Reads a specification and commands from standard input, writes events to standard output
    Disk,
    /// Print version, build profile, target and dataset formats as JSON
    Version,
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Drive => with_streams(drive),
        Command::Load => with_streams(|input, mut output| load::command(input, &mut output)),
        Command::Check => with_streams(check_scripts),
        Command::Disk => disk(),
        Command::Version => version(),
    }
}

/// Runs a command that runs scripts of the user: they reach neither its input nor its output.
fn with_streams(command: impl FnOnce(BufReader<File>, LineWriter<File>) -> ExitCode) -> ExitCode {
    match take_streams() {
        Ok((input, output)) => command(input, output),
        Err(error) => {
            eprintln!("pgdyno-engine: cannot take the standard streams: {error}");
            ExitCode::FAILURE
        }
    }
}

fn version() -> ExitCode {
    println!(
        "{}",
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "profile": if cfg!(debug_assertions) { "debug" } else { "release" },
            "target": env!("PGDYNO_TARGET"),
            "rustc": env!("PGDYNO_RUSTC"),
            "dataset_format": {"tpcc": *tpcc::FORMAT, "pgbench": *initialise::FORMAT,
                "sysbench": *sysbench::FORMAT, "linkbench": *linkbench::FORMAT,
                "insert": *insert::FORMAT},
        })
    );
    ExitCode::SUCCESS
}

fn check_scripts(mut input: BufReader<File>, mut output: LineWriter<File>) -> ExitCode {
    let mut question = String::new();
    if let Err(error) = input.read_line(&mut question) {
        eprintln!("pgdyno-engine: cannot read the question: {error}");
        return ExitCode::FAILURE;
    }
    if check::check(&question, &mut output) { ExitCode::SUCCESS } else { ExitCode::from(2) }
}

/// Ends the process at once: a FUSE session ends with its process, even if the kernel still uses the disk.
fn disk() -> ExitCode {
    let sound = blockdev::serve::run(&mut io::stdin().lock(), &mut io::stdout());
    std::process::exit(if sound { 0 } else { 2 })
}

fn drive(mut input: BufReader<File>, mut output: LineWriter<File>) -> ExitCode {
    let (sender, receiver) = mpsc::channel();
    let to_stop = sender.clone();
    let stop = move || drop(to_stop.send(Input::Stop));
    if let Err(error) = catch_termination(stop) {
        eprintln!("pgdyno-engine: {error}");
        return ExitCode::FAILURE;
    }
    let mut specification = String::new();
    if let Err(error) = input.read_line(&mut specification) {
        eprintln!("pgdyno-engine: cannot read the specification: {error}");
        return ExitCode::FAILURE;
    }
    let orders = sender.clone();
    if let Err(error) = thread::Builder::new().spawn(move || listen(input, &orders)) {
        eprintln!("pgdyno-engine: cannot start a thread: {error}");
        return ExitCode::FAILURE;
    }
    match drive::run(&specification, (sender, receiver), &mut output) {
        End::Result => ExitCode::SUCCESS,
        End::Failed => ExitCode::FAILURE,
        End::Refused => ExitCode::from(2),
    }
}

/// Forwards commands. The end of the input is a stop command.
fn listen(input: impl BufRead, orders: &mpsc::Sender<Input>) {
    for line in input.lines().map_while(Result::ok) {
        let order = serde_json::from_str::<Value>(&line).unwrap_or_default();
        let at = order.get("at_monotonic_ns").and_then(Value::as_u64).map(Nanos);
        let input = match (order.get("do").and_then(Value::as_str), at) {
            (Some("continue"), None) => Input::Continue,
            (Some("measure"), None) => Input::Measure,
            (Some("open"), Some(at_monotonic)) => Input::Open { at_monotonic },
            (Some("stop"), None) => Input::Stop,
            _ => Input::Misunderstood(line),
        };
        if orders.send(input).is_err() {
            return;
        }
    }
    let _ = orders.send(Input::Stop);
}
