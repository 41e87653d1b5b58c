//! Data that a script makes itself: its command `prepare`, as a load of the engine. `docs/reference/engine-protocol.md` has the events.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Poll;
use std::time::Instant;

use serde_json::{Value as Json, json};

use super::client::ScriptClient;
use super::links::{Connections, Place};
use super::program::{Program, ScriptError};
use super::workload;
use driver::WorkloadError;
use loader::{Emit, LoadError, Stage, Watch};
use pgwire::conninfo::Conninfo;
use reactor::{Canceller, Clock, Error, Reactor, memory_peak_bytes, usage};

const COMMAND: &str = "prepare";
/// Threads, as scripts see them, at most.
const THREADS_MAX: u64 = 1000;

/// A script and its options.
#[derive(Clone, Debug)]
pub struct ScriptData {
    program: Arc<Program>,
    /// `sysbench.opt.threads`; a script that prepares in parallel does it in so many clients.
    threads: u32,
}

impl ScriptData {
    /// Reads the workload's part of a specification: that of a drive, and `threads`.
    pub fn read(workload: &Json, seed: u64) -> Result<Self, WorkloadError> {
        let mut given = workload.clone();
        let threads = given.as_object_mut().and_then(|keys| keys.remove("threads"));
        let threads = match threads.as_ref().map(Json::as_u64) {
            None => 1,
            Some(Some(threads @ 1..=THREADS_MAX)) => threads as u32,
            Some(_) => {
                return Err(WorkloadError::value(format!("threads: not between 1 and {THREADS_MAX}")));
            }
        };
        let mut program = workload::program_of(&given, threads, seed)?;
        COMMAND.clone_into(&mut program.command);
        let data = Self { program: Arc::new(program), threads };
        let main = data.client(0).map_err(WorkloadError::value)?;
        if main.state().command(COMMAND).is_none() {
            let name = &data.program.name;
            return Err(WorkloadError::value(format!("{name} has no command {COMMAND}")));
        }
        Ok(data)
    }

    /// Runs the command. `emit` gets the events up to `result`. What the script had made when it failed or was stopped, stays.
    pub fn load(&self, conninfo: &Conninfo, stop: &AtomicBool, emit: Emit<'_>) -> Result<(), LoadError> {
        let failed = |error: Error| LoadError::from_io(Stage::Prepare, &self.doing(), &error);
        let began = Instant::now();
        let reactor = Reactor::new(Clock::monotonic()).map_err(failed)?;
        emit(json!({"event": "started", "tables": {}}));
        emit(json!({"event": "progress", "phase": COMMAND, "rows": 0, "rows_total": 0}));
        let mut clients = self.clients().map_err(|error| self.failure(error))?;
        let canceller = Canceller::new(&reactor);
        let place = Place {
            reactor: &reactor,
            conninfo,
            on_refusal: |_| (),
            canceller: Some(&canceller),
            is_used: None,
        };
        let watch = Watch { reactor: &reactor, conninfo, stops: &[stop] };
        let work = all(clients.iter_mut().map(|client| run(client, place)));
        let ended = reactor.block_on(watch.over(Some(&canceller), work)).map_err(failed)?;
        if stop.load(Relaxed) {
            return Err(LoadError::new(Stage::Prepare, "stopped"));
        }
        ended.map_err(failed)?.map_err(|error| self.failure(error))?;
        let cpu = usage();
        emit(json!({
            "event": "result",
            "phases_s": {COMMAND: began.elapsed().as_secs_f64()},
            "rows": {},
            "bytes_copied": 0,
            "cpu_ns": {"user": cpu.user.0, "system": cpu.system.0},
            "memory_peak_bytes": memory_peak_bytes(),
        }));
        Ok(())
    }

    fn client(&self, number: u32) -> Result<ScriptClient, ScriptError> {
        ScriptClient::new(Arc::clone(&self.program), number)
    }

    /// As many clients as the script wants for the command.
    fn clients(&self) -> Result<Vec<ScriptClient>, ScriptError> {
        let main = self.client(0)?;
        let is_parallel =
            main.state().commands()?.iter().any(|(name, is_parallel)| name == COMMAND && *is_parallel);
        let others = if is_parallel { 1..self.threads } else { 1..1 };
        std::iter::once(Ok(main)).chain(others.map(|number| self.client(number))).collect()
    }

    fn doing(&self) -> String {
        format!("prepare the data of {}", self.program.name)
    }

    fn failure(&self, error: ScriptError) -> LoadError {
        match error {
            ScriptError::Lua(message) => {
                LoadError::new(Stage::Prepare, format!("cannot {}: {message}", self.doing()))
            }
            ScriptError::Server { error, .. } => LoadError::from_io(Stage::Prepare, &self.doing(), &error),
        }
    }
}

/// Runs the command in one client.
async fn run(client: &mut ScriptClient, place: Place<'_>) -> Result<(), ScriptError> {
    match client.state().command(COMMAND) {
        Some(function) => client.run(place.reactor, function, &mut Connections::new(place, None)).await,
        None => Ok(()),
    }
}

/// Ends when all have ended, or one has failed.
async fn all<F: Future<Output = Result<(), ScriptError>>>(
    routines: impl Iterator<Item = F>,
) -> Result<(), ScriptError> {
    let mut running: Vec<Pin<Box<F>>> = routines.map(Box::pin).collect();
    poll_fn(|context| {
        let mut failed = None;
        running.retain_mut(|routine| match routine.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(end) => {
                failed = failed.take().or(end.err());
                false
            }
        });
        match failed {
            Some(error) => Poll::Ready(Err(error)),
            None if running.is_empty() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    })
    .await
}
