//! pgdyno-pgbench: a program with pgbench's options and output.
//!
//! | topic | module |
//! |---|---|
//! | options and usage errors | [`options`], parsed by [`getopt`] and [`values`] |
//! | `-i` | [`initialise`] |
//! | preparation of a run | [`files`], [`setup`] |
//! | threads, clock of the run | [`bench`](mod@bench) |
//! | one client | [`client`] |
//! | transaction log | [`transaction_log`] |
//! | counts and durations | [`statistics`], [`record`] |
//! | pgbench's output, and additional output | [`report`], [`detail`] |
//! | connecting, passwords | [`connect`](mod@connect) |
//! | messages, including the server's | [`log`], [`libpq`] |

mod bench;
mod client;
mod connect;
mod detail;
mod files;
mod getopt;
mod initialise;
mod libpq;
mod log;
mod options;
mod record;
mod report;
mod setup;
pub mod statistics;
pub mod transaction_log;
mod values;

use std::env;
use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use bench::run::Unfinished;
use bench::{Bench, Results};
use initialise::options::Initialisation;
use log::{Log, Reported};
use options::{Options, POSTGRESQL, Request};
use values::Refusal;

use pgwire::conninfo::Conninfo;
use reactor::tell;

const HELP: &str = include_str!("help.txt");

/// Exit status of an incomplete run: clients were aborted, or a log is incomplete.
const ABORTED: u8 = 2;

/// Runs the program. The first argument is its name.
pub fn main(arguments: &[String]) -> ExitCode {
    let (called, rest) = arguments.split_first().map_or(("pgbench", &[][..]), |(c, rest)| (c.as_str(), rest));
    let name = Path::new(called).file_name().map_or(called.into(), |name| name.to_string_lossy());
    let log = Log { program: name.into_owned(), debug: false };
    match rest.first().map(String::as_str) {
        Some("--help" | "-?") => {
            return printed(&log, &HELP.replace("pgbench-program", &log.program));
        }
        Some("--version" | "-V") => {
            let version = env!("CARGO_PKG_VERSION");
            return printed(&log, &format!("pgbench (PostgreSQL) {POSTGRESQL} (pgdyno {version})\n"));
        }
        _ => {}
    }
    match options::read(rest) {
        Ok(Request::Print(output, errors)) => {
            tell(errors);
            printed(&log, &output)
        }
        Ok(Request::Run(options)) => run(*options, &log).unwrap_or(ExitCode::FAILURE),
        Ok(Request::Initialise(options, initialisation)) => {
            initialise(&options, &initialisation, &log).unwrap_or(ExitCode::FAILURE)
        }
        Err(refusal) => {
            print_refusal(&refusal, called, &log);
            ExitCode::FAILURE
        }
    }
}

/// Prints a usage error. `called` is the program as called.
fn print_refusal(refusal: &Refusal, called: &str, log: &Log) {
    match refusal {
        Refusal::Getopt(message) => tell(format_args!("{called}: {message}\n")),
        Refusal::Error(message) | Refusal::ErrorWithHint(message) => log.error(message),
        Refusal::ErrorWithDetail(message, detail) => {
            log.error(message);
            log.detail(detail);
        }
    }
    if matches!(refusal, Refusal::Getopt(_) | Refusal::ErrorWithHint(_)) {
        log.hint(&format!("Try \"{} --help\" for more information.", log.program));
    }
}

fn printed(log: &Log, text: &str) -> ExitCode {
    log.print(text).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

/// Creates the tables. Errors are reported.
fn initialise(options: &Options, initialisation: &Initialisation, log: &Log) -> Result<ExitCode, Reported> {
    // The seed is not used, but pgbench rejects an invalid one.
    seed(options, log)?;
    let conninfo = conninfo(options, log, "initialization")?;
    initialise::run(initialisation, conninfo, log)?;
    Ok(ExitCode::SUCCESS)
}

/// Executes a run. Errors are reported.
fn run(options: Options, log: &Log) -> Result<ExitCode, Reported> {
    let log = &Log { debug: options.debug, ..log.clone() };
    let say = |message: &dyn Display| {
        log.error(&message.to_string());
        Reported
    };
    files::reserve(&options, log)?;
    let seed = seed(&options, log)?;
    let scripts = setup::scripts(&options).map_err(|error| say(&error))?;
    let mut conninfo = conninfo(&options, log, "setup")?;
    let tables = setup::prepare(&options, &scripts, &mut conninfo, log)?;
    let program = setup::program(scripts, &options, tables.scale, seed, log);
    let program = program.map_err(|error| say(&error))?;
    let bench = Arc::new(Bench::new(options, program, conninfo, tables, seed, log.clone()));
    let results = match bench::run::run(&bench) {
        Ok(results) => results,
        Err(Unfinished::NotBegun) => return Err(Reported),
        Err(Unfinished::Aborted) => return Ok(ExitCode::from(ABORTED)),
    };
    show(&bench, &results)?;
    if results.is_aborted {
        log.error("Run was aborted; the above results are incomplete.");
        return Ok(ExitCode::from(ABORTED));
    }
    Ok(if results.is_logged { ExitCode::SUCCESS } else { ExitCode::from(ABORTED) })
}

/// Connection parameters. Reports errors, and a password file that is ignored.
fn conninfo(options: &Options, log: &Log, purpose: &str) -> Result<Conninfo, Reported> {
    let conninfo = setup::conninfo(options).map_err(|error| {
        log.error(&error.to_string());
        log.error(&format!("could not create connection for {purpose}"));
        Reported
    })?;
    if let Some(ignored) = &conninfo.passfile_ignored {
        // libpq reports this for each connection.
        tell(format_args!("WARNING: {ignored}\n"));
    }
    Ok(conninfo)
}

/// The seed. As in pgbench, the environment variable is validated even if the option overrides it. Errors are
/// reported.
fn seed(options: &Options, log: &Log) -> Result<u64, Reported> {
    let variable = env::var("PGBENCH_RANDOM_SEED").ok();
    let sources = [
        (variable.as_deref(), "PGBENCH_RANDOM_SEED environment variable"),
        (options.random_seed.as_deref(), "--random-seed option"),
    ];
    let mut last = None;
    for (given, source) in sources.into_iter().filter(|(given, _)| given.is_some()) {
        let seed = setup::seed(given).map_err(|refusal| {
            print_refusal(&refusal, &log.program, log);
            log.error(&format!("error while setting random seed from {source}"));
            Reported
        })?;
        log.info(&format!("setting random seed to {seed}"));
        last = Some(seed);
    }
    // The clock always gives one.
    last.map_or_else(|| setup::seed(None).map_err(|_| Reported), Ok)
}

/// Prints the results. Errors are reported.
fn show(bench: &Bench, results: &Results) -> Result<(), Reported> {
    let detail = &bench.options.detail;
    let mut text = String::new();
    if detail.is_json {
        text += &detail::json(bench, results);
    } else {
        text += &report::text(bench, results);
        if detail.is_text {
            text += &detail::text(bench, results);
        }
    }
    bench.log.print(&text)
}
