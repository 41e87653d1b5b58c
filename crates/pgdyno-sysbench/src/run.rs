//! A run from its start to its final report, and commands of scripts.

use std::fmt::Display;
use std::process::{self, ExitCode};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use reactor::Nanos;
use sysbench::{Connections, ScriptClient};

use super::arguments::seconds;
use super::bench::{self, Bench, ThreadEnd, spawn};
use super::messages::fatal;
use super::report::{Reporter, preamble};

/// Arrivals that may wait, as in sysbench, and how often they are counted.
const QUEUE_MAX: usize = 131_071;
const QUEUE_EVERY: Nanos = Nanos(100_000_000);

/// The exit status after a forced shutdown and if clients do not start in time, as in sysbench.
const FORCED: u8 = 2;

/// Runs a command of the script in all clients.
pub fn run_command(bench: &Arc<Bench>, command: &str) -> ExitCode {
    bench.message("Initializing worker threads...\n\n");
    let ends = match spawn(bench, Some(command)) {
        Ok(ends) => ends,
        Err(error) => return failure(&error),
    };
    finish(bench, &ends)
}

/// Calls a function of the script's first state, if there is one; `false` if it failed.
fn call(main: &mut ScriptClient, links: &mut Connections<'_>, name: &str) -> bool {
    let function = main.state().find(name);
    function.is_none_or(|function| bench::call(main, links, name, function))
}

fn failure(problem: impl Display) -> ExitCode {
    fatal(problem);
    ExitCode::FAILURE
}

/// Waits for the ends of all threads.
fn finish(bench: &Bench, ends: &mpsc::Receiver<ThreadEnd>) -> ExitCode {
    for end in ends {
        if let Err(error) = end {
            return failure(&error);
        }
    }
    if bench.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Runs events, and reports. `main` is the script's first state, which has its hooks.
/// `links` are its connections.
pub fn run(bench: &Arc<Bench>, mut main: ScriptClient, links: &mut Connections<'_>) -> ExitCode {
    if main.state().find("event").is_none() && main.state().find("thread_run").is_none() {
        let name = bench.program.name.rsplit('/').next().unwrap_or_default();
        return failure(format_args!("cannot find the event() function in {name}"));
    }
    if !call(&mut main, links, "init") {
        return ExitCode::FAILURE;
    }
    bench.message(&preamble(&bench.options));
    bench.message("Initializing worker threads...\n\n");
    let ends = match spawn(bench, None) {
        Ok(ends) => ends,
        Err(error) => return failure(&error),
    };
    let Some(start) = bench.begin() else { return ExitCode::from(FORCED) };
    let mut reporter = Reporter::new(bench, start);
    if !wait(bench, start, &ends, &mut reporter, &mut main) {
        return ExitCode::FAILURE;
    }
    reporter.last(&mut main);
    if call(&mut main, links, "done") { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Waits for the ends of all threads and reports meanwhile; `false` after a failure.
fn wait(
    bench: &Bench,
    start: Nanos,
    ends: &mpsc::Receiver<ThreadEnd>,
    reporter: &mut Reporter<'_>,
    main: &mut ScriptClient,
) -> bool {
    let forced = bench.options.forced_shutdown_s.map(|s| bench.ends(start) + seconds(s));
    loop {
        let due = reporter.due().min(forced.unwrap_or(Nanos::MAX));
        // Under a rate the queue is looked at often enough.
        let every = if bench.options.rate_per_s.is_some() { QUEUE_EVERY } else { Nanos::MAX };
        let left = (due - bench.now()).min(every);
        if bench.queue().is_some_and(|(waiting, _)| waiting > QUEUE_MAX) {
            fatal("The event queue is full. The clients cannot keep up with --rate");
            bench.fail();
            return false;
        }
        match ends.recv_timeout(Duration::from_nanos(left.0)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                fatal(error);
                return false;
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) if forced.is_some_and(|at| bench.now() >= at) => {
                fatal("The --time limit has expired, forcing shutdown...");
                reporter.last(main);
                // Threads that wait for the server end with the process.
                process::exit(FORCED.into());
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                if bench.now() >= reporter.due() {
                    reporter.report(main);
                }
            }
        }
    }
    !bench.has_failed()
}
