//! One thread of a run: its clients are initialized, begin together, and run events.

use std::cell::Cell;
use std::future::ready;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use reactor::{Error, Io, Nanos, Reactor, Routine};
use sysbench::counts::Counts;
use sysbench::{Connections, EventEnd, EventLoop, ScriptClient, ScriptError, Told};

use super::{Bench, ThreadEnd, lock};
use crate::arguments::seconds;
use crate::messages::{failed, fatal};

/// What the clients of a thread share.
struct Thread<'a> {
    bench: &'a Bench,
    reactor: &'a Reactor,
    number: usize,
    start: Nanos,
    ends: Nanos,
}

/// A client of a thread.
struct Client<'a> {
    script: ScriptClient,
    links: Connections<'a>,
    place: usize,
}

/// The loop of a script's own, of one client.
struct OwnLoop<'a> {
    thread: &'a Thread<'a>,
    place: usize,
    /// When the event was due that is about to begin, under a rate.
    due: Cell<Option<Nanos>>,
    began: Cell<Nanos>,
    busy: Cell<Option<Busy<'a>>>,
    /// What is in the record of the script's counters.
    counted: Cell<Counts>,
}

impl EventLoop for OwnLoop<'_> {
    fn ask(&self, what: u32, counts: &Counts) -> Told<'_> {
        let now = self.thread.reactor.now();
        self.thread.count(now, &counts.since(&self.counted.replace(*counts)));
        match what {
            0 => return Box::pin(self.next_event()),
            1 => self.began.set(self.due.take().unwrap_or(now)),
            _ => {
                self.thread.record(self.place, now - self.began.get(), now, &Counts::default());
                self.busy.set(None);
            }
        }
        Box::pin(ready(true))
    }
}

impl OwnLoop<'_> {
    /// Waits for the next event; `false` if there is none any more.
    async fn next_event(&self) -> bool {
        self.busy.set(None);
        let Some(due) = self.thread.next_event().await else { return false };
        let bench = self.thread.bench;
        self.due.set(bench.options.rate_per_s.map(|_| due));
        self.busy.set(Some(Busy::new(&bench.busy)));
        true
    }
}

impl Bench {
    /// One thread from its start to its end. With a command, its clients run that and nothing else.
    pub(super) fn work(&self, number: usize, clients: Range<u32>, command: Option<&str>) -> ThreadEnd {
        let reactor = Reactor::with_io(self.clock.clone(), Io::Auto)?;
        let first = clients.start;
        let mut created = Vec::new();
        for tid in clients {
            match ScriptClient::new(Arc::clone(&self.program), tid) {
                Ok(script) => {
                    let links = Connections::new(self.place(&reactor), None);
                    created.push(Client { script, links, place: (tid - first) as usize });
                }
                Err(error) => {
                    fatal(error);
                    self.fail();
                }
            }
        }
        if let Some(command) = command {
            return self.all(&reactor, &mut created, command).map(|_| ());
        }
        if !self.has_failed() && !self.all(&reactor, &mut created, "thread_init")? {
            fatal("Thread initialization failed!");
        }
        let Some(start) = self.wait_for_start() else { return Ok(()) };
        self.events(&reactor, number, start, &mut created)?;
        if !self.has_failed() {
            self.all(&reactor, &mut created, "thread_done")?;
            let mut record = lock(&self.records[number]);
            for client in &created {
                record.count(&client.script.take_new_counts());
            }
        }
        Ok(())
    }

    /// Runs a function of the script in all clients, if there is one; whether all succeeded.
    fn all(&self, reactor: &Reactor, clients: &mut [Client<'_>], name: &str) -> Result<bool, Error> {
        let run = async |client: &mut Client<'_>| {
            let state = client.script.state();
            let Some(function) = state.command(name) else { return };
            let called = state.caller_of(name);
            if let Err(error) = client.script.run(reactor, function, &mut client.links).await {
                failed(called, &error);
                self.fail();
            }
        };
        reactor.run(clients.iter_mut().map(|client| Box::pin(run(client)) as Routine<'_>).collect())?;
        Ok(!self.has_failed())
    }

    /// Runs events in all clients until the run ends.
    fn events(
        &self,
        reactor: &Reactor,
        number: usize,
        start: Nanos,
        clients: &mut [Client<'_>],
    ) -> Result<(), Error> {
        let thread = Thread { bench: self, reactor, number, start, ends: self.ends(start) };
        self.running.fetch_add(clients.len() as u64, SeqCst);
        let run = async |client: &mut Client<'_>| {
            if let Err(error) = thread.client(client).await {
                failed("thread_run", &error);
                self.fail();
            }
            self.running.fetch_sub(1, SeqCst);
        };
        reactor.run(clients.iter_mut().map(|client| Box::pin(run(client)) as Routine<'_>).collect())
    }
}

/// Counts a client while it runs an event.
struct Busy<'a>(&'a AtomicU64);

impl<'a> Busy<'a> {
    fn new(busy: &'a AtomicU64) -> Self {
        busy.fetch_add(1, Relaxed);
        Self(busy)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Thread<'_> {
    /// One client from its first event to its last.
    async fn client(&self, client: &mut Client<'_>) -> Result<(), ScriptError> {
        // What thread_init asked for counts, too, as in sysbench.
        lock(&self.bench.records[self.number]).count(&client.script.take_new_counts());
        if let Some(function) = client.script.state().find("thread_run") {
            let counted = Cell::new(client.script.counts());
            let (began, place) = (Cell::new(self.start), client.place);
            let (due, busy) = (Cell::default(), Cell::default());
            let own = OwnLoop { thread: self, place, due, began, busy, counted };
            let mut links = Connections::new(self.bench.place(self.reactor), Some(&own));
            links.take_over(&mut client.links);
            let ended = client.script.run(self.reactor, function, &mut links).await;
            self.count(self.reactor.now(), &client.script.counts().since(&own.counted.get()));
            client.links.take_over(&mut links);
            client.script.take_new_counts();
            return ended;
        }
        while let Some(due) = self.next_event().await {
            let _busy = Busy::new(&self.bench.busy);
            loop {
                match client.script.event(self.reactor, &mut client.links).await? {
                    EventEnd::Done => break,
                    EventEnd::Stop => return Ok(()),
                    EventEnd::Restart => {
                        // An event that never succeeds shows its errors, and ends with the run.
                        let now = self.reactor.now();
                        self.count(now, &client.script.take_new_counts());
                        if self.bench.is_over.load(SeqCst) || now >= self.ends {
                            return Ok(());
                        }
                    }
                }
            }
            let now = self.reactor.now();
            self.record(client.place, now - due, now, &client.script.take_new_counts());
        }
        Ok(())
    }

    /// Waits for the next event, and gives the instant at which it was due.
    async fn next_event(&self) -> Option<Nanos> {
        let now = self.reactor.now();
        if !self.bench.take_event(self.ends, now) {
            return None;
        }
        let Some(due) = self.bench.take_arrival() else { return Some(now) };
        self.reactor.sleep_until(due.min(self.ends)).await;
        if due >= self.ends {
            return None;
        }
        (!self.bench.is_over.load(SeqCst)).then_some(due)
    }

    fn record(&self, place: usize, latency: Nanos, now: Nanos, counts: &Counts) {
        if self.is_reported(now) {
            lock(&self.bench.records[self.number]).add(place, latency, counts);
        }
    }

    /// Counts queries of an event that has not ended.
    fn count(&self, now: Nanos, counts: &Counts) {
        if self.is_reported(now) {
            lock(&self.bench.records[self.number]).count(counts);
        }
    }

    fn is_reported(&self, now: Nanos) -> bool {
        now - self.start >= seconds(self.bench.options.warmup_s)
    }
}
