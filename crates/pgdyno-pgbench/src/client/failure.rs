//! Failed transactions: messages and retries.

use super::{Aborted, Client};
use crate::log::statement_text;
use crate::record::lock;
use crate::statistics::Outcome;
use pgbench::session::Stop;
use pgwire::SqlState;
use pgwire::backend::ProtocolError;
use reactor::{Error, Nanos};

impl Client<'_, '_> {
    /// Reports the failure. Returns an outcome if the client continues.
    pub(super) fn failure(&self, stop: Stop) -> Result<Outcome, Aborted> {
        let (options, log) = (&self.thread.bench.options, &self.thread.bench.log);
        let client = self.runner.client();
        let (id, script, command) = (client.id, client.script(), client.command());
        let error = match stop {
            Stop::Script(abort) | Stop::LeftOpen(abort) => {
                abort.messages.iter().for_each(|message| log.error(message));
                return Err(Aborted);
            }
            Stop::Session(error) => error,
        };
        let outcome = match error.sqlstate() {
            Some(SqlState::SERIALIZATION_FAILURE) => Outcome::Serialization,
            Some(SqlState::DEADLOCK_DETECTED) => Outcome::Deadlock,
            _ => Outcome::Other,
        };
        let goes_on = outcome != Outcome::Other || options.continue_on_error;
        if goes_on && !error.is_fatal() {
            if options.verbose_errors {
                let text = statement_text(&error, self.runner.statement().as_deref());
                log.info(&format!(
                    "client {id} got an error in command {command} (SQL) of script {script}; {text}"
                ));
            }
            return Ok(outcome);
        }
        if is_copy(&error) {
            log.error("COPY is not supported in pgbench, aborting");
        } else if let Error::Server(_) = error {
            let query = self.runner.query();
            let text = statement_text(&error, self.runner.statement().as_deref());
            log.error(&format!(
                "client {id} script {script} aborted in command {command} query {query}: {text}"
            ));
        } else {
            let why = match error {
                Error::Closed => "perhaps the backend died while processing".to_owned(),
                error => error.to_string(),
            };
            log.error(&format!("client {id} aborted in command {command} (SQL) of script {script}; {why}"));
        }
        Err(Aborted)
    }

    pub(super) fn may_retry(&self, outcome: Outcome, tries: u32, took: Nanos) -> bool {
        let bench = self.thread.bench;
        let max_tries = bench.options.max_tries;
        let is_late = bench.latency_limit.is_some_and(|limit| took > limit);
        outcome != Outcome::Other && (max_tries == 0 || tries < max_tries) && !is_late
    }

    pub(super) fn note_failure(&self, script: usize, again: bool, tries: u32, took: Nanos) {
        let bench = self.thread.bench;
        let client = self.runner.client();
        lock(self.thread.record).add_failure(script, client.command(), again);
        if bench.options.verbose_errors {
            let does =
                if again { "repeats the transaction after the error" } else { "ends the failed transaction" };
            let of = if bench.options.max_tries > 0 {
                format!("/{}", bench.options.max_tries)
            } else {
                String::new()
            };
            let used = bench.latency_limit.map(|limit| {
                let used = 100.0 * took.0 as f64 / limit.0 as f64;
                format!(", {used:.3}% of the maximum time of tries was used")
            });
            let used = used.unwrap_or_default();
            bench.log.info(&format!("client {} {does} (try {tries}{of}{used})", client.id));
        }
    }
}

/// Whether the server started a COPY, which scripts do not support.
fn is_copy(error: &Error) -> bool {
    matches!(error, Error::Protocol(ProtocolError::Unexpected { message, .. }) if message.starts_with("Copy"))
}
