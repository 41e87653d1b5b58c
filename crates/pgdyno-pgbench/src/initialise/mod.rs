//! `-i`: pgbench's tables, created by the loader with pgbench's messages.

pub mod options;
mod progress;

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::connect::prompt_if_required;
use super::libpq::{error_text, print_notice};
use super::log::{Log, Reported, server_text};
use loader::{LoadError, LoadOptions, Replaceable, Stage};
use options::Initialisation;
use pgbench::initialise::PgbenchTables;
use pgwire::conninfo::Conninfo;
use progress::ProgressReporter;
use reactor::catch_termination;

/// Creates the tables. The first interrupt cleans up, the second one exits at once.
pub fn run(initialisation: &Initialisation, conninfo: Conninfo, log: &Log) -> Result<(), Reported> {
    let stop = Arc::new(AtomicBool::new(false));
    let on_signal = Arc::clone(&stop);
    let interrupted = move || {
        if on_signal.swap(true, Relaxed) {
            process::exit(1);
        }
    };
    catch_termination(interrupted).map_err(|error| {
        log.error(&error.to_string());
        Reported
    })?;
    let mut order = LoadOptions {
        conninfo,
        connections: initialisation.connections,
        vacuum_connections: None,
        server_settings: false,
        existing: Replaceable::All,
        on_notice: Some(print_notice),
    };
    let mut reporter = ProgressReporter::new(initialisation);
    let dataset = PgbenchTables::new(initialisation.initialise.clone());
    let mut loaded = loader::load(&dataset, &order, &stop, &mut |event| reporter.hear(&event));
    if let Err(LoadError { unconnected: Some(error), .. }) = &loaded {
        if prompt_if_required(error, &mut order.conninfo) {
            loaded = loader::load(&dataset, &order, &stop, &mut |event| reporter.hear(&event));
        }
    }
    loaded.map_err(|error| {
        reporter.end();
        say(&error, log)
    })
}

fn say(error: &LoadError, log: &Log) -> Reported {
    match (&error.refused, &error.unconnected) {
        (Some(refused), _) => {
            log.error(&format!("query failed: {}", error_text(&refused.error, Some(&refused.statement))));
            log.detail(&format!("Query was: {}", refused.statement));
        }
        (None, Some(error)) => log.error(&server_text(error)),
        (None, None) => log.error(&error.message),
    }
    if error.stage == Stage::Connect {
        log.error("could not create connection for initialization");
    }
    Reported
}
