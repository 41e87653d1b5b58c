//! One thread of the driver: a loop with a share of every target's clients.

use std::cell::{Cell, RefCell};
use std::sync::mpsc;

use super::Seat;
use super::client::{News, Place, Rules};
use super::connector::Door;
use super::job::{Job, Shift};
use super::lane::{Lane, Window};
use super::order::{Drained, ERRORS_MAX, Input, Order, Report};
use super::random::derive_seed;
use super::schedule::Schedule;
use super::spec::{Driving, Pacing};
use crate::record::{Finished, Histogram, LaneRecord};
use pgwire::conninfo::Conninfo;
use reactor::{Clock, Error, Io, Mailbox, Nanos, Reactor, Routine, Usage};
use reactor::{keep_thread_to, thread_usage};

/// What a thread leaves behind.
pub struct Legacy {
    /// By target.
    pub records: Vec<Finished>,
    /// How late deadlines were served.
    pub lateness: Histogram,
}

/// One target, as all threads drive it.
pub struct Aim<'a> {
    /// Where it is.
    pub conninfo: &'a Conninfo,
    /// What its clients do,
    pub job: &'a dyn Job,
    /// and how.
    pub driving: Driving<'a>,
    /// The first of the threads that drive it,
    pub first_thread: u32,
    /// and how many these are.
    pub threads: u32,
}

/// What all threads of a run share.
pub struct Crew<'a> {
    /// The targets.
    pub aims: Vec<Aim<'a>>,
    /// Number of threads.
    pub threads: u32,
    /// The run's seed.
    pub seed: u64,
    /// Limit on connecting one client.
    pub connect_timeout: Nanos,
    /// The run's clock.
    pub clock: Clock,
    /// How connections send and wait.
    pub io: Io,
}

impl Crew<'_> {
    /// Runs thread number `thread` until it is ordered to finish.
    pub fn work(
        &self,
        thread: u32,
        orders: Mailbox<Order>,
        inputs: &mpsc::Sender<Input>,
    ) -> Result<Legacy, Error> {
        let reactor = Reactor::with_io(self.clock.clone(), self.io)?;
        let lane = |aim: &Aim<'_>| {
            let own = aim.clients_of(thread).len() as u32;
            Lane::new(&reactor, aim.record(), own)
        };
        let lanes: Vec<Lane> = self.aims.iter().map(lane).collect();
        let doors: Vec<Door> =
            self.aims.iter().map(|aim| Door::new(aim.conninfo, self.connect_timeout, self.threads)).collect();
        let shifts: Vec<Box<dyn Shift + '_>> = self.aims.iter().map(|aim| aim.job.shift()).collect();
        let known = RefCell::new(Vec::new());
        let used_before = Cell::default();
        let send = |report| drop(inputs.send(Input::Report(report))); // It fails only when the control thread is gone: so are we, soon.
        let tell = |target: usize| {
            let (lanes, known, used_before) = (&lanes, &known, &used_before);
            move |news| match news {
                News::Connected => send(Report::Connected(target)),
                News::Failed(stage, error) => send(Report::Failed { target, stage, error }),
                News::Calibrated { round_trips, server_version } => {
                    send(Report::Calibrated { round_trips, server_version });
                }
                News::ServerLost(error) => send(Report::ServerLost { target, message: error.to_string() }),
                News::Done => send(Report::Done { at: lanes[target].now() }),
                News::Left => report_drained(target, &lanes[target], used_before, &send),
                News::Error(error) => report_error(known, target, &error, &send),
            }
        };
        let tells: Vec<_> = (0..lanes.len()).map(tell).collect();
        let mut clients: Vec<Routine<'_>> = Vec::new();
        for (target, aim) in self.aims.iter().enumerate() {
            let (all, own) = (aim.driving.clients, thread.saturating_sub(aim.first_thread));
            for client in aim.clients_of(thread) {
                let own_seed = derive_seed(self.seed, u64::from(client));
                let place = Place {
                    lane: &lanes[target],
                    reactor: &reactor,
                    dial: &doors[target],
                    rules: self.rules(aim),
                    is_first: client == 0,
                    tell: &tells[target],
                };
                clients.push(
                    shifts[target].client(Seat { client, clients: all, thread: own, seed: own_seed }, place),
                );
            }
        }
        let orders = orders.serve(&reactor, |order| self.obey(&order, thread, &lanes, &used_before, &send));
        reactor.run_beside(orders, clients)??;
        for shift in &shifts {
            shift.end();
        }
        let mut lateness = Histogram::default();
        let mut records = Vec::new();
        for lane in lanes {
            lateness.merge(&lane.lateness.borrow());
            records.push(lane.record.into_inner().finish());
        }
        Ok(Legacy { records, lateness })
    }

    fn rules(&self, aim: &Aim<'_>) -> Rules {
        let Driving { pacing, retries_max, .. } = aim.driving;
        Rules { pacing, retries_max, connect_timeout: self.connect_timeout }
    }

    /// Carries out an order; whether there are more to come.
    fn obey(
        &self,
        order: &Order,
        thread: u32,
        lanes: &[Lane],
        used_before: &Cell<Usage>,
        send: &impl Fn(Report),
    ) -> bool {
        let open = || lanes.iter().enumerate().filter(|(_, lane)| lane.is_open());
        match order {
            Order::Calibrate(target) => {
                if thread == self.aims[*target].first_thread {
                    lanes[*target].calibrate();
                }
            }
            Order::Keep(targets) => {
                let own = targets.iter().find(|(target, _)| self.aims[*target].clients_of(thread).len() > 0);
                if let Some(Err(error)) = own.map(|(_, cores)| keep_thread_to(cores)) {
                    send(Report::Broken(error));
                }
            }
            Order::Open(windows) => {
                used_before.set(thread_usage());
                for &window in windows {
                    lanes[window.target].open(window, self.schedule(thread, &window));
                }
            }
            Order::Publish => {
                for (target, lane) in open() {
                    let mut record = lane.record.borrow_mut();
                    let (totals, latency) = (record.totals(), record.take_interval());
                    send(Report::Interval { target, totals, latency });
                }
            }
            Order::Close => {
                for (target, lane) in open() {
                    lane.close();
                    report_drained(target, lane, used_before, send);
                }
            }
            Order::Abandon => lanes.iter().for_each(Lane::abandon),
            Order::Finish => return false,
        }
        true
    }

    /// The arrivals of this thread's clients, in an open loop: its share of the target's rate.
    fn schedule(&self, thread: u32, window: &Window) -> Option<Schedule> {
        let aim = &self.aims[window.target];
        let (rate, clients) = (aim.driving.rate?, aim.clients_of(thread).len());
        if clients == 0 {
            return None;
        }
        let per_s = rate.per_s * clients as f64 / f64::from(aim.driving.clients);
        let own = thread - aim.first_thread;
        let phase = f64::from(own) / f64::from(aim.threads);
        // A stream of its own for each thread and slice, after those of the clients. Targets that are driven at the same
        // time have the same arrivals, as their clients draw the same transactions.
        let clients_max = self.aims.iter().map(|aim| aim.driving.clients).max().unwrap_or(0);
        let number =
            u64::from(clients_max) + u64::from(window.serial) * u64::from(self.threads) + u64::from(own);
        Some(Schedule::new(rate.arrivals, per_s, phase, window.opened, derive_seed(self.seed, number)))
    }
}

impl Aim<'_> {
    /// The clients that a thread runs.
    fn clients_of(&self, thread: u32) -> impl ExactSizeIterator<Item = u32> + use<> {
        let clients = self.driving.clients;
        let own = thread.checked_sub(self.first_thread).filter(|&own| own < self.threads);
        (own.unwrap_or(clients)..clients).step_by(self.threads as usize)
    }

    fn record(&self) -> LaneRecord {
        let can_lag = self.driving.rate.is_some() || self.driving.pacing == Pacing::KeyingAndThinking;
        LaneRecord::new(self.job.kinds().len(), self.job.counters().len(), can_lag)
    }
}

fn report_drained(target: usize, lane: &Lane, used_before: &Cell<Usage>, send: &impl Fn(Report)) {
    if let Some((_, abandoned)) = lane.take_drained() {
        let mut record = lane.record.borrow_mut();
        let ended: u64 = record.totals().iter().map(|counts| counts.all).sum();
        assert_eq!(ended, record.begun, "every transaction that was begun has ended");
        let drained = Drained {
            totals: record.totals(),
            counters: record.counters.clone(),
            measured: record.measured(),
            latency: record.take_interval(),
            at: lane.now(),
            abandoned,
            // What a thread does is of the target whose clients it runs, not of those that others run.
            used: if lane.has_clients() { thread_usage() - used_before.get() } else { Usage::default() },
        };
        send(Report::Drained { target, drained });
    }
}

type Known = RefCell<Vec<(usize, Option<String>, u32)>>;

/// Reports an error, unless many of its like were reported before.
fn report_error(known: &Known, target: usize, error: &Error, send: &impl Fn(Report)) {
    let sqlstate = error.sqlstate().map(|sqlstate| sqlstate.as_str().to_owned());
    let mut known = known.borrow_mut();
    let place = known.iter().position(|(t, s, _)| (*t, s) == (target, &sqlstate));
    let place = place.unwrap_or_else(|| {
        known.push((target, sqlstate.clone(), 0));
        known.len() - 1
    });
    known[place].2 += 1;
    if known[place].2 <= ERRORS_MAX {
        send(Report::Error { target, sqlstate, message: error.to_string() });
    }
}
