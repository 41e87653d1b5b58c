//! A complete run: starts the threads, waits for them, merges their results.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use super::{Bench, Results, ThreadResult, unix_s};
use crate::report;
use pgbench::random::clients_per_thread;
use reactor::{Error, Nanos, catch_panic, tell};

/// Reason why there are no results, already reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// The clients failed to start.
    NotBegun,
    /// A client was aborted with `--exit-on-abort`.
    Aborted,
}

/// Executes a run. Errors are reported.
pub fn run(bench: &Arc<Bench>) -> Result<Results, Unfinished> {
    let say = |error: &Error| {
        bench.log.error(&error.to_string());
        Unfinished::NotBegun
    };
    let options = &bench.options;
    let from = bench.clock.now();
    let (sender, thread_results) = mpsc::channel();
    let could_not = |source| say(&Error::system("start a thread", source));
    let mut first = 0;
    for (thread, count) in
        clients_per_thread(options.clients as usize, options.jobs as usize).into_iter().enumerate()
    {
        let (bench, sender, count) = (Arc::clone(bench), sender.clone(), count as u32);
        let work = move || drop(sender.send(catch_panic(|| bench.work(thread, first, count))));
        let started = thread::Builder::new().name(format!("driver {thread}")).spawn(work);
        started.map_err(could_not)?;
        first += count;
    }
    drop(sender);
    wait(bench, from, &thread_results)
}

/// Waits for the threads and reports progress.
fn wait(
    bench: &Bench,
    from: Nanos,
    thread_results: &mpsc::Receiver<Result<Option<ThreadResult>, Error>>,
) -> Result<Results, Unfinished> {
    let mut results = Results { is_logged: true, ..Results::default() };
    let mut progress = report::Progress::default();
    let every = Nanos(u64::from(bench.options.progress_s) * 1_000_000_000);
    let start = bench.clock.now();
    let mut next = if every == Nanos::ZERO { Nanos::MAX } else { start + every };
    loop {
        let left = next - bench.clock.now();
        match thread_results.recv_timeout(Duration::from_nanos(left.0)) {
            Ok(Ok(Some(thread_result))) => {
                results.connecting_again = results.connecting_again + thread_result.connecting;
                results.is_aborted |= thread_result.aborted;
                results.is_logged &= thread_result.is_logged;
                if thread_result.aborted && bench.options.exit_on_abort {
                    // The other threads end with the process.
                    bench.log.error(&format!(
                        "Run was aborted due to an error in thread {}",
                        thread_result.thread
                    ));
                    return Err(Unfinished::Aborted);
                }
            }
            Ok(Ok(None)) => return Err(Unfinished::NotBegun),
            Ok(Err(error)) => {
                bench.log.error(&error.to_string());
                return Err(Unfinished::NotBegun);
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let now = bench.clock.now();
                tell(progress.line(bench, bench.so_far(), now - start, unix_s()));
                next = next + every;
                // After a pause of the process, one line is enough.
                while next <= now {
                    next = next + every;
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    let start = bench.start();
    results.cpu = bench.cpu();
    results.duration = bench.run_until(bench.clock.now());
    results.connecting_first = start.at - from;
    results.record = bench.recorded();
    Ok(results)
}
