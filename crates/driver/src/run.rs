//! A complete run: reads the specification, starts the threads, merges their results.

use std::io::Write;
use std::sync::mpsc;
use std::thread;
use std::time::SystemTime;

use serde_json::{Value, json};

use super::any_workload::AnyWorkload;
use super::control::{Control, Halt, Stopped, failed};
use super::error::{SpecificationError, WorkloadError};
use super::event_writer::{Events, by_kind, by_name, measured};
use super::messages::{Command, ErrorCounts, Input, Report};
use super::spec::{Driving, Spec, TargetSpec};
use super::worker::{Target, ThreadResult, Workers};
use crate::record::{Histogram, Recorder};
use reactor::{Clock, catch_panic, mailbox, memory_peak_bytes, raise_file_limit, usage};

/// Open files of a thread besides its connections, and of the process besides its threads.
const FILES_PER_THREAD: u64 = 8;
const FILES_OF_PROCESS: u64 = 64;
/// Stack size of a thread: several times the needs of the loop.
const STACK_BYTES: usize = 512 << 10;

/// End of a run, which determines the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With a result.
    Result,
    /// With a failure.
    Failed,
    /// The specification was invalid.
    Refused,
}

/// Information for a workload besides its own part of the specification.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadContext {
    /// Number of clients of the target.
    pub clients: u32,
    /// Number of threads that run them.
    pub threads: u32,
    /// Seed of the run.
    pub seed: u64,
}

/// Function that reads the `workload` of a specification.
pub type ReadWorkload = dyn Fn(&Value, WorkloadContext) -> Result<AnyWorkload, WorkloadError>;

/// Runs the specification `text`. `inputs` are the two ends of the command channel.
pub fn run(
    text: &str,
    inputs: (mpsc::Sender<Input>, mpsc::Receiver<Input>),
    out: &mut dyn Write,
    read_workload: &ReadWorkload,
) -> End {
    let mut events = Events::new(out);
    match read(text, read_workload) {
        Ok((spec, workloads)) => Run { spec: &spec, workloads: &workloads }.carry_out(inputs, events),
        Err(error) => {
            let message = error.to_string();
            let body =
                json!({"stage": "specification", "target": null, "message": message, "sqlstate": null});
            // An error means that nobody reads. The exit status has the result.
            let _ = events.write("failed", body);
            End::Refused
        }
    }
}

/// Reads a specification, and the workload of each target.
fn read(text: &str, read_workload: &ReadWorkload) -> Result<(Spec, Vec<AnyWorkload>), SpecificationError> {
    let spec = Spec::read(text)?;
    let read_one = |target: usize| {
        let TargetSpec { name, workload: own, .. } = &spec.targets[target];
        let wrong = |source| match own {
            Some(_) => SpecificationError::TargetWorkload { target: name.clone(), source },
            None => SpecificationError::Workload(source),
        };
        let Driving { workload, clients, .. } = spec.driving(target);
        let context = WorkloadContext { clients, threads: spec.threads_of(target), seed: spec.seed };
        read_workload(workload, context).map_err(wrong)
    };
    let workloads = (0..spec.targets.len()).map(read_one).collect::<Result<Vec<_>, _>>()?;
    Ok((spec, workloads))
}

/// A run whose threads cannot be started.
fn not_started(error: &reactor::Error) -> Halt {
    failed("connect", None, error.to_string(), None)
}

/// Reason why a run ended, and the results of its threads.
type Ended = (Halt, Vec<ThreadResult>);

struct Run<'a> {
    spec: &'a Spec,
    workloads: &'a [AnyWorkload],
}

impl Run<'_> {
    fn carry_out(&self, inputs: (mpsc::Sender<Input>, mpsc::Receiver<Input>), mut events: Events<'_>) -> End {
        let spec = self.spec;
        let clock = Clock::monotonic();
        let epoch_unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let (first_thread, count) = spec.own_threads();
        let io = spec.io.resolve();
        let started = json!({"epoch_unix_ns": epoch_unix.as_nanos() as u64,
            "epoch_monotonic_ns": clock.epoch().0, "threads": count, "io": io,
            "pid": std::process::id()});
        let _ = events.write("started", started);
        let entry = |target: usize| Target {
            conninfo: &self.spec.targets[target].conninfo,
            workload: &*self.workloads[target],
            driving: spec.driving(target),
            first_thread: spec.first_thread_of(target),
            threads: spec.threads_of(target),
        };
        let workers = Workers {
            targets: (0..spec.targets.len()).map(entry).collect(),
            threads: spec.threads_used(),
            first_thread,
            seed: spec.seed,
            connect_timeout: spec.connect_timeout,
            clock: clock.clone(),
            io,
        };
        let (sender, inputs) = inputs;
        let mut control = Control {
            spec,
            workloads: self.workloads,
            clock,
            inputs,
            threads: Vec::new(),
            servers: Vec::new(),
            events,
            totals: vec![Vec::new(); spec.targets.len()],
            measured: vec![Vec::new(); spec.targets.len()],
            counters: vec![Vec::new(); spec.targets.len()],
            unfinished: Vec::new(),
            left_out: Vec::new(),
            is_warm: false,
            errors: ErrorCounts::default(),
        };
        let ended = self.spawn(&workers, &mut control, &sender);
        let (halt, thread_results) = ended.unwrap_or_else(|error| (not_started(&error), Vec::new()));
        self.conclude(halt, thread_results, control)
    }

    /// Spawns the threads, runs `control`, joins the threads.
    fn spawn(
        &self,
        workers: &Workers<'_>,
        control: &mut Control<'_, '_>,
        inputs: &mpsc::Sender<Input>,
    ) -> Result<Ended, reactor::Error> {
        let connections: u64 =
            (0..self.spec.targets.len()).map(|target| u64::from(self.spec.own_clients(target))).sum();
        let (first, threads) = self.spec.own_threads();
        raise_file_limit(connections + u64::from(threads) * FILES_PER_THREAD + FILES_OF_PROCESS)?;
        thread::scope(|scope| {
            let mut handles = Vec::new();
            let started = (first..first + threads).try_for_each(|number| -> Result<(), reactor::Error> {
                let (sender, commands) = mailbox()?;
                control.threads.push(sender);
                let inputs = inputs.clone();
                let builder = thread::Builder::new().name(format!("driver {number}")).stack_size(STACK_BYTES);
                let work = move || {
                    let thread_result = catch_panic(|| workers.work(number, commands, &inputs));
                    thread_result.map_err(|error| {
                        drop(inputs.send(Input::Report(Report::Broken(error))));
                    })
                };
                let handle = builder.spawn_scoped(scope, work);
                handles.push(handle.map_err(|source| reactor::Error::system("start a thread", source))?);
                Ok(())
            });
            // If a thread cannot be started, the others wait for commands.
            let halt = started.map_or_else(|error| not_started(&error), |()| control.run());
            for thread in &control.threads {
                thread.send(Command::Finish)?;
            }
            // Results of the threads that did not fail are kept.
            Ok((halt, handles.into_iter().filter_map(|handle| handle.join().ok()?.ok()).collect()))
        })
    }

    fn conclude(&self, halt: Halt, thread_results: Vec<ThreadResult>, mut control: Control<'_, '_>) -> End {
        let (stopped, lost) = match &halt {
            Halt::Stopped(Stopped::Done) => ("done", None),
            Halt::Stopped(Stopped::Stop) => ("stop", None),
            Halt::Stopped(Stopped::ServerLost(target)) => ("server-lost", Some(*target)),
            Halt::Failed(_) => ("failed", None),
        };
        let mut result = self.result(thread_results);
        result["stopped"] = stopped.into();
        result["unfinished"] = std::mem::take(&mut control.unfinished).into();
        result["left_out"] = std::mem::take(&mut control.left_out).into();
        result["lost"] = lost.map(|target| self.spec.targets[target].name.clone()).into();
        match halt {
            Halt::Stopped(_) => {
                let _ = control.events.write("result", result);
                End::Result
            }
            Halt::Failed(failure) => {
                let has_measured = control.totals.iter().flatten().any(|counts| counts.all > 0);
                let target = failure.target.map(|target| self.spec.targets[target].name.clone());
                let mut body = json!({"stage": failure.stage, "target": target, "message": failure.message,
                    "sqlstate": failure.sqlstate});
                if has_measured {
                    body["result"] = result;
                }
                let _ = control.events.write("failed", body);
                End::Failed
            }
        }
    }

    fn result(&self, thread_results: Vec<ThreadResult>) -> Value {
        let mut merged = vec![Recorder::default(); self.spec.targets.len()];
        let mut lateness = Histogram::default();
        for thread_result in thread_results {
            lateness.merge(&thread_result.lateness);
            merged.iter_mut().zip(&thread_result.records).for_each(|(records, record)| records.merge(record));
        }
        let target = |(index, record): (usize, Recorder)| {
            let workload = &self.workloads[index];
            let kinds = workload.kinds();
            json!({"kinds": measured(&kinds, &record.measured), "totals": by_kind(&kinds, &record.totals),
                "counters": by_name(workload.counters(), &record.counters), "connections_lost": record.connections_lost,
                "tally": workload.tally()})
        };
        let targets: Vec<_> = merged.into_iter().map(Recorder::finish).enumerate().map(target).collect();
        let used = usage();
        let [p50, p99] = [0.5, 0.99].map(|quantile| lateness.quantile_ns(quantile));
        json!({"targets": targets, "driver": {
            "cpu_ns": {"user": used.user.0, "system": used.system.0},
            "memory_peak_bytes": memory_peak_bytes(),
            "wake_late_ns": {"p50": p50, "p99": p99, "max": lateness.max_ns()},
            "threads": self.spec.own_threads().1, "io": self.spec.io.resolve()}})
    }
}
