//! Worker thread: an event loop that runs a part of the clients of each target.

use std::cell::{Cell, RefCell};
use std::sync::mpsc;

use pgwire::conninfo::Conninfo;
use reactor::{Clock, Error, Io, Mailbox, Nanos, Reactor, Routine, Usage, keep_thread_to, thread_usage};

use super::ClientId;
use super::any_workload::{DynWorkload, WorkloadThread};
use super::client::{ClientContext, ClientEvent, ClientRules};
use super::client_group::ClientGroup;
use super::connector::Connector;
use super::messages::{Command, Drained, ErrorCounts, Input, Report};
use super::random::derive_seed;
use super::schedule::Schedule;
use super::spec::{Driving, Pacing};
use crate::record::{Histogram, Recorder};

/// Result of a thread.
pub struct ThreadResult {
    /// By target.
    pub records: Vec<Recorder>,
    /// Lateness of deadlines.
    pub lateness: Histogram,
}

/// One target, shared by all threads.
pub struct Target<'a> {
    /// Connection parameters.
    pub conninfo: &'a Conninfo,
    /// Workload.
    pub workload: &'a dyn DynWorkload,
    /// Options.
    pub driving: Driving<'a>,
    /// First thread that drives it.
    pub first_thread: u32,
    /// Number of threads that drive it.
    pub threads: u32,
}

/// The worker threads of a run, and their shared state.
pub struct Workers<'a> {
    /// Targets.
    pub targets: Vec<Target<'a>>,
    /// Number of threads, over all engines of the run.
    pub threads: u32,
    /// Number of the first thread of this engine.
    pub first_thread: u32,
    /// Seed of the run.
    pub seed: u64,
    /// Timeout of connecting one client.
    pub connect_timeout: Nanos,
    /// Clock of the run.
    pub clock: Clock,
    /// I/O interface of connections.
    pub io: Io,
}

impl Workers<'_> {
    /// Runs thread number `thread` until the finish command.
    pub fn work(
        &self,
        thread: u32,
        commands: Mailbox<Command>,
        inputs: &mpsc::Sender<Input>,
    ) -> Result<ThreadResult, Error> {
        let reactor = Reactor::with_io(self.clock.clone(), self.io)?;
        let group = |entry: &Target<'_>| {
            let own = entry.clients_of(thread).len() as u32;
            ClientGroup::new(&reactor, entry.record(), own, self.schedule(thread, entry))
        };
        let groups: Vec<ClientGroup> = self.targets.iter().map(group).collect();
        let connectors: Vec<Connector> = self
            .targets
            .iter()
            .map(|entry| Connector::new(entry.conninfo, self.connect_timeout, self.threads))
            .collect();
        let workload_threads: Vec<Box<dyn WorkloadThread + '_>> =
            self.targets.iter().map(|entry| entry.workload.workload_thread()).collect();
        let errors = RefCell::default();
        let used_before = Cell::default();
        let send = |report| drop(inputs.send(Input::Report(report))); // It only fails if the control thread has ended, and then so does this thread.
        let notify = |target: usize| {
            let (groups, errors, used_before) = (&groups, &errors, &used_before);
            move |event| match event {
                ClientEvent::Connected => send(Report::Connected(target)),
                ClientEvent::Failed(stage, error) => send(Report::Failed { target, stage, error }),
                ClientEvent::Calibrated { round_trips, server_version } => {
                    send(Report::Calibrated { round_trips, server_version });
                }
                ClientEvent::ServerLost(error) => {
                    send(Report::ServerLost { target, message: error.to_string() });
                }
                ClientEvent::Done => send(Report::Done { at: groups[target].now() }),
                ClientEvent::Left => report_drained(target, &groups[target], used_before, &send),
                ClientEvent::Error(error) => report_error(errors, target, &error, &send),
            }
        };
        let notifiers: Vec<_> = (0..groups.len()).map(notify).collect();
        let mut clients: Vec<Routine<'_>> = Vec::new();
        for (target, entry) in self.targets.iter().enumerate() {
            let (all, own) = (entry.driving.clients, thread.saturating_sub(entry.first_thread));
            for client in entry.clients_of(thread) {
                let own_seed = derive_seed(self.seed, u64::from(client));
                let context = ClientContext {
                    group: &groups[target],
                    reactor: &reactor,
                    connector: &connectors[target],
                    rules: self.rules(entry),
                    is_first: client == self.first_thread,
                    notify: &notifiers[target],
                };
                clients.push(
                    workload_threads[target]
                        .client(ClientId { client, clients: all, thread: own, seed: own_seed }, context),
                );
            }
        }
        let commands = commands
            .serve(&reactor, |command| self.handle_command(&command, thread, &groups, &used_before, &send));
        reactor.run_concurrently(commands, clients)??;
        for workload_thread in &workload_threads {
            workload_thread.end();
        }
        let mut lateness = Histogram::default();
        let mut records = Vec::new();
        for group in groups {
            lateness.merge(&group.lateness.borrow());
            records.push(group.record.into_inner());
        }
        Ok(ThreadResult { records, lateness })
    }

    fn rules(&self, entry: &Target<'_>) -> ClientRules {
        let Driving { pacing, retries_max, .. } = entry.driving;
        ClientRules { pacing, retries_max, connect_timeout: self.connect_timeout }
    }

    /// Handles a command. Returns false after the last one.
    fn handle_command(
        &self,
        command: &Command,
        thread: u32,
        groups: &[ClientGroup],
        used_before: &Cell<Usage>,
        send: &impl Fn(Report),
    ) -> bool {
        let open = || groups.iter().enumerate().filter(|(_, group)| group.is_open());
        match command {
            Command::Calibrate(target) => {
                if thread == self.targets[*target].first_thread.max(self.first_thread) {
                    groups[*target].calibrate();
                }
            }
            Command::Keep(targets) => {
                let own =
                    targets.iter().find(|(target, _)| self.targets[*target].clients_of(thread).len() > 0);
                if let Some(Err(error)) = own.map(|(_, cores)| keep_thread_to(cores)) {
                    send(Report::Broken(error));
                }
            }
            Command::Open(windows) => {
                used_before.set(thread_usage());
                for &window in windows {
                    groups[window.target].open(window);
                }
            }
            Command::Publish => {
                for (target, group) in open() {
                    let mut record = group.record.borrow_mut();
                    let (totals, latency) = (record.totals.clone(), record.take_interval());
                    send(Report::Interval { target, totals, latency });
                }
            }
            Command::Close => {
                for (target, group) in open() {
                    group.close();
                    report_drained(target, group, used_before, send);
                }
            }
            Command::Abandon => groups.iter().for_each(ClientGroup::abandon),
            Command::Finish => return false,
        }
        true
    }

    /// Arrivals for this thread's clients in an open loop: its share of the target's rate.
    pub fn schedule(&self, thread: u32, entry: &Target<'_>) -> Option<Schedule> {
        let (rate, clients) = (entry.driving.rate?, entry.clients_of(thread).len());
        if clients == 0 {
            return None;
        }
        let per_s = rate.per_s * clients as f64 / f64::from(entry.driving.clients);
        let own = thread - entry.first_thread;
        let phase = f64::from(own) / f64::from(entry.threads);
        // Each thread has its own random stream, after those of the clients. All targets have the same
        // arrivals, as their clients draw the same transactions.
        let clients_max = self.targets.iter().map(|entry| entry.driving.clients).max().unwrap_or(0);
        let seed = derive_seed(self.seed, u64::from(clients_max) + u64::from(own));
        Some(Schedule::new(rate.arrivals, per_s, phase, seed))
    }
}

impl Target<'_> {
    /// The clients of a thread.
    pub fn clients_of(&self, thread: u32) -> impl ExactSizeIterator<Item = u32> + use<> {
        let clients = self.driving.clients;
        let own = thread.checked_sub(self.first_thread).filter(|&own| own < self.threads);
        (own.unwrap_or(clients)..clients).step_by(self.threads as usize)
    }

    fn record(&self) -> Recorder {
        let has_own_times = self.workload.has_due_times() || self.driving.pacing == Pacing::KeyingAndThinking;
        let can_lag = self.driving.rate.is_some() || has_own_times;
        Recorder::new(self.workload.kinds().len(), self.workload.counters().len(), can_lag)
    }
}

fn report_drained(target: usize, group: &ClientGroup, used_before: &Cell<Usage>, send: &impl Fn(Report)) {
    if let Some(abandoned) = group.take_drained() {
        let mut record = group.record.borrow_mut();
        let ended: u64 = record.totals.iter().map(|counts| counts.all).sum();
        assert_eq!(ended, record.begun, "every transaction that was begun has ended");
        let drained = Drained {
            totals: record.totals.clone(),
            counters: record.counters.clone(),
            measured: record.measured(),
            latency: record.take_interval(),
            at: group.now(),
            abandoned,
            // CPU time of a thread is attributed to the target whose clients it runs.
            used: if group.has_clients() { thread_usage() - used_before.get() } else { Usage::default() },
        };
        send(Report::Drained { target, drained });
    }
}

/// Reports an error, unless enough of its SQLSTATE have been reported.
fn report_error(errors: &RefCell<ErrorCounts>, target: usize, error: &Error, send: &impl Fn(Report)) {
    let sqlstate = error.sqlstate().map(|sqlstate| sqlstate.as_str().to_owned());
    if errors.borrow_mut().add(target, sqlstate.as_deref()) {
        send(Report::Error { target, sqlstate, message: error.to_string() });
    }
}
