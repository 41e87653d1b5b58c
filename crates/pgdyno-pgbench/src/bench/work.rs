//! One thread of a run: connects its clients, runs them, collects their results.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::process;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Bench, ThreadResult};
use crate::client::{Client, Thread};
use crate::connect::connect;
use crate::libpq::system_text;
use crate::log::server_text;
use crate::transaction_log::{Columns, TransactionLog};
use pgbench::session::ScriptRunner;
use reactor::{Connection, Error, Gate, Io, Nanos, Reactor, Routine};

/// State of a thread before its start.
struct Ready {
    /// Log file, if enabled.
    log: Option<File>,
    /// By client; `None` with `--connect`.
    connections: Vec<Option<Connection>>,
}

impl Bench {
    /// Runs one thread, from connecting to the end. `None`: it failed to start and has reported the reason.
    pub(super) fn work(&self, thread: usize, first: u32, count: u32) -> Result<Option<ThreadResult>, Error> {
        let reactor = Reactor::with_io(self.clock.clone(), Io::Auto)?;
        let ready = reactor.block_on(self.prepare(&reactor, thread, first..first + count))?;
        self.has_failed.fetch_or(ready.is_none(), Ordering::SeqCst);
        self.barrier.wait();
        let (Some(ready), false) = (ready, self.has_failed.load(Ordering::SeqCst)) else {
            return Ok(None);
        };
        let began = self.start().at;
        let time = Nanos(u64::from(self.options.time_s) * 1_000_000_000);
        let columns = Columns::new(&self.options);
        let log = |file| TransactionLog::new(file, columns, self.zero, &self.options.log, began);
        let shared = Thread {
            bench: self,
            reactor: reactor.clone(),
            streams: Cell::new(self.program.startup.threads()[thread]),
            due: Cell::new(began),
            ends: if time > Nanos::ZERO { began + time } else { Nanos::MAX },
            record: &self.records[thread],
            connecting: Cell::new(Nanos::ZERO),
            log: ready.log.map(|file| RefCell::new(log(file))),
        };
        let clients = (first..).zip(ready.connections).map(|(id, connection)| {
            Client::new(&shared, ScriptRunner::new(Arc::clone(&self.program), id), connection)
        });
        let aborted = self.drive(&reactor, clients.collect())?;
        let connecting = shared.connecting.get();
        let is_logged = self.close_log(thread, shared.log);
        Ok(Some(ThreadResult { thread, connecting, aborted, is_logged }))
    }

    /// Opens the log and connects the clients one after the other.
    async fn prepare(
        &self,
        reactor: &Reactor,
        thread: usize,
        clients: std::ops::Range<u32>,
    ) -> Option<Ready> {
        let log = if self.options.log.is_wanted {
            let path = self.options.log.path(process::id(), thread);
            let could_not = |error| {
                self.log.error(&format!("could not open logfile \"{path}\": {}", system_text(&error)));
            };
            Some(File::create(&path).map_err(could_not).ok()?)
        } else {
            None
        };
        let mut connections = Vec::new();
        for id in clients {
            if self.options.connect {
                connections.push(None);
                continue;
            }
            match connect(reactor, &self.conninfo).await {
                Ok(connection) => connections.push(Some(connection)),
                Err(error) => {
                    self.log.error(&server_text(&error));
                    self.log.error(&format!("could not create connection for client {id}"));
                    return None;
                }
            }
        }
        Some(Ready { log, connections })
    }

    /// Runs clients until all have ended. Returns whether a client was aborted.
    fn drive(&self, reactor: &Reactor, clients: Vec<Client<'_, '_>>) -> Result<bool, Error> {
        let (aborted, left, gate) = (Cell::new(false), Cell::new(clients.len()), Gate::default());
        let run = async |client: Client<'_, '_>| {
            if client.run().await.is_err() {
                aborted.set(true);
            }
            left.set(left.get() - 1);
            gate.notify(reactor);
        };
        let ends_early = || aborted.get() && self.options.exit_on_abort;
        let end = gate.wait(reactor, || (left.get() == 0 || ends_early()).then_some(()));
        let run = clients.into_iter().map(|client| Box::pin(run(client)) as Routine<'_>);
        reactor.run_concurrently(end, run.collect())?;
        Ok(aborted.get())
    }

    /// Flushes a thread's log. Returns false if it is incomplete, which is reported.
    fn close_log(&self, thread: usize, log: Option<RefCell<TransactionLog>>) -> bool {
        let Some(log) = log else { return true };
        let closed = log.into_inner().close(self.clock.now());
        if let Err(error) = &closed {
            let path = self.options.log.path(process::id(), thread);
            self.log.error(&format!("could not write to logfile \"{path}\": {}", system_text(error)));
            self.log.detail("The log is incomplete.");
        }
        closed.is_ok()
    }
}
