//! A complete load: connections, rounds, events and cleanup.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::dataset::{Dataset, Replaceable};
use super::error::{LoadError, Stage};
use super::phase::Phase;
use super::progress::{Progress, forecast};
use super::timing::Timing;
use super::watch::{CONNECT_TIMEOUT, Watch};
use super::worker::{self, Queue, Shared};
use pgwire::conninfo::Conninfo;
use reactor::{
    Canceller, Clock, Connection, Error, OnNotice, Reactor, Usage, catch_panic, memory_peak_bytes,
    raise_file_limit, usage,
};

/// Open files of a connection: itself, its loop, a query whether the server responds, and a CancelRequest.
const FILES_PER_CONNECTION: u64 = 4;
/// Open files besides the connections.
const FILES_OF_PROCESS: u64 = 32;

/// Minimum interval of progress events: ten per second.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// Switches off timeouts of the server, the database and the role: copies and indexes take long, and sessions wait for
/// each other. Some are unknown to older versions.
const NO_TIMEOUTS: &str = "SELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings \
    WHERE name IN ('statement_timeout', 'transaction_timeout', 'lock_timeout', 'idle_session_timeout', \
    'idle_in_transaction_session_timeout')";

/// Takes back the settings of [`Dataset::SESSION`] that change the duration of a load.
const SERVER_SETTINGS: &str =
    "RESET synchronous_commit; RESET maintenance_work_mem; RESET backend_flush_after";

/// Handler of events.
pub type Emit<'a> = &'a mut dyn FnMut(Value);

/// Options of a load.
pub struct LoadOptions {
    /// Connection parameters.
    pub conninfo: Conninfo,
    /// Number of connections, each with its own thread. Connections that can never have a job are not opened.
    pub connections: u32,
    /// Number of connections that run VACUUM and ANALYZE; `None`: as many as load.
    pub vacuum_connections: Option<u32>,
    /// Whether sessions keep the memory and the commits that the server's settings give them.
    pub server_settings: bool,
    /// Existing tables that may be replaced.
    pub existing: Replaceable,
    /// Handler of the server's notices.
    pub on_notice: Option<OnNotice>,
}

impl LoadOptions {
    /// Connects and prepares the session.
    async fn connect<D: Dataset>(&self, reactor: &Reactor) -> Result<Connection, LoadError> {
        let further = if self.server_settings { SERVER_SETTINGS } else { "" };
        let session = [NO_TIMEOUTS, D::SESSION, further].join("; ");
        // Errors of connecting are complete messages.
        let failed = |error: Error| {
            let sqlstate = error.sqlstate();
            let failed = LoadError::new(Stage::Connect, error.to_string());
            LoadError { sqlstate, unconnected: Some(Box::new(error)), ..failed }
        };
        let connected = async {
            let mut connection = Connection::connect(reactor, &self.conninfo).await?;
            connection.on_notice(self.on_notice);
            connection.simple(&session).await?;
            Ok(connection)
        };
        let connected = reactor.until(reactor.now() + CONNECT_TIMEOUT, connected).await;
        let late = Error::Timeout { waited_for: "connecting", limit: CONNECT_TIMEOUT };
        connected.unwrap_or(Err(late)).map_err(failed)
    }
}

/// Loads a dataset.
///
/// `emit` receives the events up to `result`. A failure is returned after cleaning up. Setting `stop` ends the
/// load as a failure.
pub fn load<D: Dataset>(
    dataset: &D,
    options: &LoadOptions,
    stop: &AtomicBool,
    emit: Emit<'_>,
) -> Result<(), LoadError> {
    let reactor = reactor()?;
    let watch = Watch { reactor: &reactor, conninfo: &options.conninfo, stops: &[stop] };
    let mut control = watched(&watch, None, options.connect::<D>(&reactor))?;
    let progress = Progress::new(dataset.tables().len());
    let shared = Shared { progress, stop: AtomicBool::new(false) };
    emit(forecast(dataset.tables()));
    let began = Instant::now();
    let canceller = control.canceller();
    let ready = watched(&watch, Some(&canceller), dataset.begin(&mut control, options.existing));
    ready.map_err(|error| stopped_or(error, stop))?;
    let mut timing = Timing::default();
    timing.add(Phase::Create, None, began.elapsed());

    let connections = options.connections.min(dataset.connections_max());
    let tables = u32::try_from(dataset.tables().len()).unwrap_or(u32::MAX);
    let vacuum_connections = options.vacuum_connections.map_or(connections, |n| n.min(tables));
    let loading = Loading { dataset, options, connections, vacuum_connections, shared: &shared, stop };
    let mut reached = Phase::Create;
    let filled = loading
        .carry_out(&watch, &mut control, emit, &mut timing, &mut reached)
        .and_then(|()| watched(&watch, Some(&canceller), dataset.finish(&mut control)));
    filled.map_err(|error| loading.clean_up(&reactor, reached, error))?;
    let mut result = json!({
        "event": "result",
        "phases_s": timing.phases_s(),
        "rows": shared.progress.rows(dataset.tables()),
        "bytes_copied": shared.progress.bytes(),
        "cpu_ns": cpu(usage()),
        "cpu_copy_ns": cpu(timing.cpu_copy),
        "memory_peak_bytes": memory_peak_bytes(),
    });
    if let Some(steps) = timing.steps() {
        result["steps"] = steps;
    }
    emit(result);
    Ok(())
}

/// An event of a worker for the control thread.
enum WorkerEvent {
    Connected,
    Done,
    Failed(LoadError),
}

/// A load in progress.
struct Loading<'a, D> {
    dataset: &'a D,
    options: &'a LoadOptions,
    connections: u32,
    vacuum_connections: u32,
    shared: &'a Shared,
    stop: &'a AtomicBool,
}

impl<D: Dataset> Loading<'_, D> {
    /// Executes the rounds. `reached` is the phase of the last started one.
    fn carry_out(
        &self,
        watch: &Watch<'_>,
        control: &mut Connection,
        emit: Emit<'_>,
        timing: &mut Timing,
        reached: &mut Phase,
    ) -> Result<(), LoadError> {
        let opened = self.connections.max(self.vacuum_connections);
        let files = u64::from(opened) * FILES_PER_CONNECTION + FILES_OF_PROCESS;
        // Not above the hard limit, as an error would be: not all files are open at the same time.
        raise_file_limit(files.min(reactor::file_limit()))
            .map_err(|error| LoadError::from_io(Stage::Connect, "prepare the connections", &error))?;
        thread::scope(|scope| {
            let (event_sender, worker_events) = mpsc::channel();
            let workers: Vec<_> =
                (0..opened).map(|_| self.start_worker(scope, event_sender.clone())).collect();
            drop(event_sender);
            self.wait(&worker_events, opened, &mut || {})?;
            let (mut done, mut step) = (0, None);
            let mut began = Instant::now();
            let canceller = control.canceller();
            while let Some(round) = watched(watch, Some(&canceller), self.dataset.round(done, control))? {
                *reached = round.phase;
                if round.step != step {
                    step = round.step;
                    if let Some((_, letter)) = step {
                        emit(json!({"event": "step", "step": letter}));
                    }
                }
                let (phase, cpu_before) = (round.phase, usage());
                let queue = Arc::new(Queue { phase, jobs: Mutex::new(round.jobs.into_iter()) });
                let working = self.connections_in(phase);
                for worker in workers.iter().take(working as usize) {
                    // A worker that has ended has reported the reason.
                    let _ = worker.send(Arc::clone(&queue));
                }
                self.wait(&worker_events, working, &mut || emit(self.progress(phase)))?;
                if let Some(rows) = round.rows {
                    self.shared.progress.holds(&rows);
                }
                emit(self.progress(phase));
                timing.add(phase, step, began.elapsed());
                if phase == Phase::Copy {
                    timing.cpu_copy += usage() - cpu_before;
                }
                began = Instant::now();
                done += 1;
            }
            Ok(())
        })
    }

    fn progress(&self, phase: Phase) -> Value {
        self.shared.progress.event(phase, self.dataset.tables())
    }

    fn connections_in(&self, phase: Phase) -> u32 {
        match phase {
            Phase::Vacuum | Phase::Analyze => self.vacuum_connections,
            Phase::Create | Phase::Copy | Phase::Index => self.connections,
        }
    }

    /// Waits until so many workers have responded. Calls `tick` periodically.
    fn wait(
        &self,
        worker_events: &Receiver<WorkerEvent>,
        mut missing: u32,
        tick: &mut dyn FnMut(),
    ) -> Result<(), LoadError> {
        let mut failure = None;
        while missing > 0 {
            match worker_events.recv_timeout(PROGRESS_EVERY) {
                Ok(WorkerEvent::Connected | WorkerEvent::Done) => missing -= 1,
                Ok(WorkerEvent::Failed(error)) => {
                    missing -= 1;
                    self.shared.stop.store(true, Relaxed);
                    failure = failure.or(Some(error));
                }
                Err(RecvTimeoutError::Timeout) => tick(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.stop.load(Relaxed) {
                self.shared.stop.store(true, Relaxed);
            }
        }
        match failure {
            Some(error) => Err(error),
            None if self.shared.stop.load(Relaxed) => Err(stopped()),
            None => Ok(()),
        }
    }

    fn start_worker<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        worker_events: Sender<WorkerEvent>,
    ) -> Sender<Arc<Queue>> {
        let (orders_to, orders) = mpsc::channel();
        let unstarted = worker_events.clone();
        let started = thread::Builder::new().spawn_scoped(scope, move || {
            let panicked = |error: Error| Err(going_on(&error));
            let served = catch_panic(|| Ok(self.serve(&orders, &worker_events))).unwrap_or_else(panicked);
            // The receiver of events outlives the workers unless the load has failed.
            if let Err(error) = served {
                let _ = worker_events.send(WorkerEvent::Failed(error));
            }
        });
        if let Err(error) = started {
            let error = LoadError::new(Stage::Connect, format!("cannot start a thread: {error}"));
            let _ = unstarted.send(WorkerEvent::Failed(error));
        }
        orders_to
    }

    fn serve(
        &self,
        orders: &Receiver<Arc<Queue>>,
        worker_events: &Sender<WorkerEvent>,
    ) -> Result<(), LoadError> {
        let reactor = reactor()?;
        let stops = [self.stop, &self.shared.stop];
        let watch = Watch { reactor: &reactor, conninfo: &self.options.conninfo, stops: &stops };
        let mut connection = watched(&watch, None, self.options.connect::<D>(&reactor))?;
        let _ = worker_events.send(WorkerEvent::Connected);
        let canceller = connection.canceller();
        while let Ok(queue) = orders.recv() {
            let work = worker::work(&mut connection, &queue, self.shared);
            match watched(&watch, Some(&canceller), work) {
                // Canceled on request.
                Err(error) if error.is_cancelled() && stops.iter().any(|stop| stop.load(Relaxed)) => {}
                worked => worked?,
            }
            let _ = worker_events.send(WorkerEvent::Done);
        }
        Ok(())
    }

    /// Cleans up over a new connection, because the old ones may be unusable. Returns the reason of the
    /// failure.
    fn clean_up(&self, reactor: &Reactor, reached: Phase, error: LoadError) -> LoadError {
        let mut error = stopped_or(error, self.stop);
        let failed = |error: Error| LoadError::from_io(Stage::Copy, "take back what was done", &error);
        let clean_up = async {
            let mut connection = self.options.connect::<D>(reactor).await?;
            let filled = self.shared.progress.tables_filled();
            self.dataset.clean_up(&mut connection, reached, &filled).await.map_err(failed)
        };
        // A stop, earlier or now, limits the time. Its statement is not canceled.
        let watch = Watch { reactor, conninfo: &self.options.conninfo, stops: &[self.stop] };
        let ended = reactor.block_on(watch.over(None, clean_up)).map_err(|error| stalled(&error));
        if let Err(problem) = ended.and_then(|ended| ended.map_err(failed)?) {
            error.message = format!("{}; {}: {problem}", error.message, D::LEFT_BEHIND);
        }
        error
    }
}

fn stopped() -> LoadError {
    LoadError::new(Stage::Copy, "the load was stopped")
}

/// Replaces the error of a statement that was canceled on request.
fn stopped_or(error: LoadError, stop: &AtomicBool) -> LoadError {
    if error.is_cancelled() && stop.load(Relaxed) { stopped() } else { error }
}

fn reactor() -> Result<Reactor, LoadError> {
    Reactor::new(Clock::monotonic()).map_err(|error| stalled(&error))
}

/// Runs a part of a load until it ends or `watch` ends it.
fn watched<T>(
    watch: &Watch<'_>,
    canceller: Option<&Canceller>,
    work: impl Future<Output = Result<T, LoadError>>,
) -> Result<T, LoadError> {
    let ended = watch.reactor.block_on(watch.over(canceller, work)).map_err(|error| stalled(&error))?;
    ended.map_err(|error| going_on(&error))?
}

fn going_on(error: &Error) -> LoadError {
    LoadError::from_io(Stage::Copy, "go on with the load", error)
}

fn stalled(error: &Error) -> LoadError {
    LoadError::from_io(Stage::Connect, "run the event loop", error)
}

fn cpu(usage: Usage) -> Value {
    json!({"user": usage.user.0, "system": usage.system.0})
}
