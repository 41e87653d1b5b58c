//! The whole load: connections, phases, events, and what happens when it fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::error::{LoadError, Stage};
use super::phase::{PHASES, Phase, Queue};
use super::progress::{Progress, forecast};
use super::specification::{CONNECTIONS_MAX, Specification, Workload};
use super::target;
use super::worker::{self, Shared};
use crate::io::{Clock, Connection, Error, Reactor, Usage, memory_peak_bytes, usage};
use crate::tpcc::population::Population;
use crate::wire::conninfo::{self, Conninfo};

/// At most ten progress events a second.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// Carries out a load. `emit` gets the events `started`, `progress` and `result`; a failure is returned, after what
/// the load had created was dropped. Setting `stop` ends the load as a failure.
pub fn run(
    specification: &Specification,
    stop: &AtomicBool,
    emit: &mut dyn FnMut(Value),
) -> Result<(), LoadError> {
    let Workload::Tpcc { warehouses } = specification.workload;
    let conninfo = conninfo::load(&specification.conninfo)
        .map_err(|error| LoadError::new(Stage::Specification, error.to_string()))?;
    let reactor = reactor()?;
    let mut control = block_on(&reactor, worker::connect(&reactor, &conninfo))?;
    let shared = Shared {
        population: Population::new(specification.seed, warehouses),
        progress: Progress::default(),
        stop: AtomicBool::new(false),
    };
    emit(forecast(&shared.population));
    let began = Instant::now();
    block_on(&reactor, target::begin(&mut control, specification.into_existing))?;
    let mut phases_s = Map::new();
    phases_s.insert("create".to_owned(), json!(began.elapsed().as_secs_f64()));

    let connections = specification.connections.min(CONNECTIONS_MAX);
    let filled = fill(&conninfo, connections, &shared, stop, emit, &mut phases_s).and_then(|cpu_copy| {
        block_on(&reactor, target::create_routines(&mut control))?;
        block_on(&reactor, target::mark(&mut control, &shared.population, warehouses, specification.seed))?;
        Ok(cpu_copy)
    });
    let cpu_copy = filled.map_err(|error| clean_up(&reactor, &conninfo, &shared, error))?;
    emit(json!({
        "event": "result",
        "phases_s": phases_s,
        "rows": shared.progress.rows(),
        "bytes_copied": shared.progress.bytes(),
        "cpu_ns": cpu(usage()),
        "cpu_copy_ns": cpu(cpu_copy),
        "memory_peak_bytes": memory_peak_bytes(),
    }));
    Ok(())
}

/// A worker's news for the control thread.
enum News {
    Connected,
    Done,
    Failed(LoadError),
}

type Order = (Phase, Arc<Queue>);

/// Runs the phases over `connections` connections; the processor time that the copy phase took.
fn fill(
    conninfo: &Conninfo,
    connections: u32,
    shared: &Shared,
    stop: &AtomicBool,
    emit: &mut dyn FnMut(Value),
    phases_s: &mut Map<String, Value>,
) -> Result<Usage, LoadError> {
    thread::scope(|scope| {
        let (news_to, news) = mpsc::channel();
        let workers: Vec<_> =
            (0..connections).map(|_| start_worker(scope, conninfo, shared, news_to.clone())).collect();
        drop(news_to);
        wait(&news, connections, shared, stop, &mut || {})?;
        let mut cpu_copy = Usage::default();
        for phase in PHASES {
            let (began, cpu_before) = (Instant::now(), usage());
            let queue = Arc::new(Queue::new());
            for worker in &workers {
                // A worker that has gone has said why.
                let _ = worker.send((phase, Arc::clone(&queue)));
            }
            wait(&news, connections, shared, stop, &mut || {
                emit(shared.progress.event(phase, &shared.population));
            })?;
            emit(shared.progress.event(phase, &shared.population));
            phases_s.insert(phase.name().to_owned(), json!(began.elapsed().as_secs_f64()));
            if phase == Phase::Copy {
                cpu_copy = usage() - cpu_before;
            }
        }
        Ok(cpu_copy)
    })
}

/// Waits until each worker has answered, calling `tick` now and then.
fn wait(
    news: &Receiver<News>,
    workers: u32,
    shared: &Shared,
    stop: &AtomicBool,
    tick: &mut dyn FnMut(),
) -> Result<(), LoadError> {
    let (mut missing, mut failure) = (workers, None);
    while missing > 0 {
        match news.recv_timeout(PROGRESS_EVERY) {
            Ok(News::Connected | News::Done) => missing -= 1,
            Ok(News::Failed(error)) => {
                missing -= 1;
                shared.stop.store(true, Relaxed);
                failure = failure.or(Some(error));
            }
            Err(RecvTimeoutError::Timeout) => tick(),
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if stop.load(Relaxed) {
            shared.stop.store(true, Relaxed);
        }
    }
    match failure {
        Some(error) => Err(error),
        None if shared.stop.load(Relaxed) => Err(LoadError::new(Stage::Copy, "the load was stopped")),
        None => Ok(()),
    }
}

fn start_worker<'scope>(
    scope: &'scope Scope<'scope, '_>,
    conninfo: &'scope Conninfo,
    shared: &'scope Shared,
    news: Sender<News>,
) -> Sender<Order> {
    let (orders_to, orders) = mpsc::channel();
    scope.spawn(move || {
        // The receiver of news outlives the workers unless the load has failed already.
        if let Err(error) = serve(conninfo, shared, &orders, &news) {
            let _ = news.send(News::Failed(error));
        }
    });
    orders_to
}

fn serve(
    conninfo: &Conninfo,
    shared: &Shared,
    orders: &Receiver<Order>,
    news: &Sender<News>,
) -> Result<(), LoadError> {
    let reactor = reactor()?;
    let mut connection = block_on(&reactor, worker::connect(&reactor, conninfo))?;
    let _ = news.send(News::Connected);
    while let Ok((phase, queue)) = orders.recv() {
        block_on(&reactor, worker::work(&mut connection, phase, &queue, shared))?;
        let _ = news.send(News::Done);
    }
    Ok(())
}

/// Drops what the load had created, by a new connection because the old ones may be of no use; gives back why it failed.
fn clean_up(reactor: &Reactor, conninfo: &Conninfo, shared: &Shared, mut error: LoadError) -> LoadError {
    let cleaned = block_on(reactor, async {
        let mut connection: Connection = worker::connect(reactor, conninfo).await?;
        target::clean_up(&mut connection, &shared.progress.tables_created())
            .await
            .map_err(|error| LoadError::from_io(Stage::Copy, "drop what was created", &error))
    });
    if let Err(problem) = cleaned {
        error.message =
            format!("{}; what it created is still there, without a mark: {problem}", error.message);
    }
    error
}

fn reactor() -> Result<Reactor, LoadError> {
    Reactor::new(Clock::monotonic()).map_err(|error| stalled(&error))
}

fn block_on<T>(
    reactor: &Reactor,
    future: impl Future<Output = Result<T, LoadError>>,
) -> Result<T, LoadError> {
    reactor.block_on(future).map_err(|error| stalled(&error))?
}

fn stalled(error: &Error) -> LoadError {
    LoadError::from_io(Stage::Connect, "run the event loop", error)
}

fn cpu(usage: Usage) -> Value {
    json!({"user": usage.user.0, "system": usage.system.0})
}
