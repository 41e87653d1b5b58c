//! A scripted server, a simple workload, and a test bench for clients.

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::client::{Client, ClientContext, ClientEvent, ClientRules};
use crate::client_group::ClientGroup;
use crate::connector::Connect;
use crate::record::{Counts, Recorder};
use crate::schedule::{Schedule, Window};
use crate::spec::Pacing;
use crate::{ClientId, Ending, User, Workload};
use pgwire::frontend;
use reactor::{Clock, Connection, Error, Gate, Nanos, Reactor, Routine, Socket};

pub const MS: u64 = 1_000_000;
/// Duration of a CancelRequest.
const CANCEL_TAKES: Nanos = Nanos(100 * MS);

/// Reply of the server to a request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Commits after this number of ns.
    Ok(u64),
    /// Reports an error after this number of ns, outside of a transaction.
    Error(u64, &'static str),
    /// Reports an error, in a failed transaction.
    ErrorInTransaction(u64, &'static str),
    /// Closes the connection after this number of ns.
    Close(u64),
    /// Never replies.
    Silence,
}

/// A server for one client. It sends its replies in order, repeats the last one, and records the requests.
pub struct Server {
    pub replies: RefCell<Vec<Reply>>,
    /// Reply to a ROLLBACK.
    pub rollback: RefCell<Reply>,
    pub requests: RefCell<Vec<(u64, String)>>,
    /// Number of further connections to accept.
    pub admits: Cell<u32>,
    pub cancels: Cell<u32>,
    arrived: RefCell<Vec<OwnedFd>>,
    gate: Gate,
}

impl Server {
    pub fn new(replies: Vec<Reply>) -> Rc<Self> {
        let mut replies = replies;
        replies.reverse();
        Rc::new(Self {
            replies: RefCell::new(replies),
            rollback: RefCell::new(Reply::Ok(1_000)),
            requests: RefCell::default(),
            admits: Cell::new(u32::MAX),
            cancels: Cell::default(),
            arrived: RefCell::default(),
            gate: Gate::default(),
        })
    }

    pub fn transactions(&self) -> Vec<String> {
        let requests = self.requests.borrow();
        requests.iter().map(|(_, sql)| sql.clone()).filter(|sql| sql.starts_with("tx")).collect()
    }

    async fn serve(self: Rc<Self>, reactor: Reactor) {
        loop {
            let fd = self.gate.wait(&reactor, || self.arrived.borrow_mut().pop()).await;
            let socket = Socket::new(&reactor, fd).expect("a socket");
            self.converse(&reactor, &socket).await;
        }
    }

    /// One session, until either side closes it.
    async fn converse(&self, reactor: &Reactor, socket: &Socket) {
        let (mut received, mut space) = (Vec::new(), [0; 4096]);
        loop {
            socket.readable().await;
            match socket.receive(&mut space) {
                Ok(count) => received.extend_from_slice(&space[..count.unwrap_or(0)]),
                Err(_) => return,
            }
            while let Some(sql) = take_query(&mut received) {
                self.requests.borrow_mut().push((reactor.now().0, sql.clone()));
                let is_rollback = sql == "ROLLBACK";
                let reply = if is_rollback { self.rollback.borrow().clone() } else { self.next_reply() };
                if !answer(reactor, socket, reply).await {
                    return;
                }
            }
        }
    }

    fn next_reply(&self) -> Reply {
        let mut replies = self.replies.borrow_mut();
        if replies.len() > 1 { replies.pop().expect("a reply") } else { replies[0].clone() }
    }
}

/// Takes a Query message; panics at any other except Terminate.
fn take_query(received: &mut Vec<u8>) -> Option<String> {
    let length = 1 + u32::from_be_bytes(received.get(1..5)?.try_into().expect("four bytes")) as usize;
    let message: Vec<u8> = (received.len() >= length).then(|| received.drain(..length).collect())?;
    match message[0] {
        b'Q' => Some(String::from_utf8_lossy(&message[5..length - 1]).into_owned()),
        b'X' => None,
        other => unreachable!("the scripted server does not know message {other}"),
    }
}

async fn answer(reactor: &Reactor, socket: &Socket, reply: Reply) -> bool {
    let error = |code: &str| {
        let fields = format!("SERROR\0VERROR\0C{code}\0Mscripted\0\0");
        message(b'E', fields.as_bytes())
    };
    let (after, mut bytes) = match reply {
        Reply::Ok(after) => (after, [message(b'C', b"SELECT 1\0"), message(b'Z', b"I")].concat()),
        Reply::Error(after, code) => (after, [error(code), message(b'Z', b"I")].concat()),
        Reply::ErrorInTransaction(after, code) => (after, [error(code), message(b'Z', b"E")].concat()),
        Reply::Close(after) => (after, Vec::new()),
        Reply::Silence => return true,
    };
    reactor.sleep_until(reactor.now() + Nanos(after)).await;
    !bytes.is_empty() && socket.send(&mut bytes, 0).is_ok()
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    [&[tag], &(body.len() as u32 + 4).to_be_bytes()[..], body].concat()
}

impl Connect for Rc<Server> {
    async fn connect(&self, reactor: &Reactor) -> Result<Connection, Error> {
        let Some(left) = self.admits.get().checked_sub(1) else {
            return Err(Error::Connect("nobody listens".to_owned()));
        };
        self.admits.set(left);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let (ours, theirs) = pair.expect("a pair of sockets");
        self.arrived.borrow_mut().push(theirs);
        self.gate.notify(reactor);
        Ok(Connection::new(Socket::new(reactor, ours)?))
    }

    async fn cancel(&self, connection: &Connection) {
        let reactor = connection.reactor();
        reactor.sleep_until(reactor.now() + CANCEL_TAKES).await;
        self.cancels.set(self.cancels.get() + 1);
    }
}

/// A user whose n-th transaction sends `tx n`. Every `rolls_back`-th one is rolled back by design.
#[derive(Default)]
pub struct Counting {
    pub rolls_back: Option<u32>,
    pub keying: Nanos,
    pub thinking: Nanos,
    /// Whether it sends a query before its first transaction.
    pub prepares: bool,
    /// Whether it restarts a transaction after any error.
    pub restarts: bool,
    /// Whether it draws another transaction for each retry.
    pub redraws: bool,
    /// When the n-th transaction is due, in ns.
    pub due: Option<fn(u32) -> u64>,
    /// Number of drawn transactions.
    pub number: u32,
}

impl User for Counting {
    type Tally = ();

    async fn prepare(&mut self, connection: &mut Connection) -> Result<(), Error> {
        if self.prepares { connection.simple("prepare").await.map(drop) } else { Ok(()) }
    }

    fn draw(&mut self, (): &mut ()) -> usize {
        self.number += 1;
        0
    }

    fn redraw(&mut self, tally: &mut ()) -> Option<usize> {
        self.redraws.then(|| self.draw(tally))
    }

    async fn attempt(&mut self, connection: &mut Connection) -> Result<Ending, Error> {
        frontend::query(connection.out(), &format!("tx {}", self.number))?;
        connection.flush().await?;
        connection.answer().await?;
        let rolls_back = self.rolls_back.is_some_and(|every| self.number.is_multiple_of(every));
        Ok(if rolls_back { Ending::RolledBack } else { Ending::Committed })
    }

    fn add_to_counters(&self, is_committed: bool, counters: &mut [u64]) {
        counters[0] += u64::from(self.number) * u64::from(is_committed);
    }

    fn restarts(&self) -> bool {
        self.restarts
    }

    fn due(&mut self, _slice: (Nanos, Nanos), now: Nanos) -> Nanos {
        self.due.map_or(now, |due| Nanos(due(self.number)))
    }

    fn keying(&self) -> Nanos {
        self.keying
    }

    fn thinking(&mut self) -> Nanos {
        self.thinking
    }
}

/// A workload with one kind of transaction.
pub struct OneKind;

impl Workload for OneKind {
    type User = Counting;
    type Tally = ();

    fn kinds(&self) -> Vec<&str> {
        vec!["tx"]
    }

    fn counters(&self) -> &'static [&'static str] {
        &["numbers"]
    }

    fn user(&self, _: ClientId) -> Counting {
        Counting::default()
    }
}

/// Results of a play.
pub struct Played {
    pub record: Recorder,
    pub begun: u64,
    /// By slice: number of abandoned transactions, and when it was drained.
    pub drained: Vec<(u32, u64)>,
    /// When the clients completed the transactions of a slice.
    pub done: Vec<u64>,
    pub events: Vec<String>,
}

impl Played {
    pub fn measured(&self) -> Counts {
        self.record.measured[0].counts
    }

    pub fn totals(&self) -> Counts {
        self.record.totals[0]
    }
}

/// A test case: one or two clients, each with a server, and slices at given times.
pub struct Play {
    pub server: Rc<Server>,
    pub user: Counting,
    pub rules: ClientRules,
    /// Start and end in ns; the first one counts from 0.
    pub slices: Vec<(u64, u64)>,
    /// Discarded part of each slice in ns.
    pub discard: u64,
    /// How long after its start each slice reaches the clients, in ns.
    pub opens_late: u64,
    /// Transaction limit of each slice.
    pub transactions: Option<u64>,
    /// Server of a second client.
    pub beside: Option<Rc<Server>>,
    /// Arrivals of an open loop.
    pub schedule: Option<Schedule>,
    /// When transactions in flight are abandoned.
    pub abandon_at: Option<u64>,
    /// When the open slice is closed early.
    pub close_at: Option<u64>,
    /// Whether the round trip is measured first.
    pub calibrates: bool,
    /// Duration in ns.
    pub lasts: u64,
}

impl Play {
    /// A closed loop with one slice of 100 ms.
    pub fn new(replies: Vec<Reply>) -> Self {
        Self {
            server: Server::new(replies),
            user: Counting::default(),
            rules: ClientRules { pacing: Pacing::None, retries_max: 3, connect_timeout: Nanos(1_000 * MS) },
            slices: vec![(0, 100 * MS)],
            discard: 0,
            opens_late: 0,
            transactions: None,
            beside: None,
            schedule: None,
            abandon_at: None,
            close_at: None,
            calibrates: false,
            lasts: 10_000 * MS,
        }
    }

    pub fn run(self) -> Played {
        let reactor = Reactor::new(Clock::fake()).expect("a loop");
        let has_own_times = self.user.due.is_some() || self.rules.pacing == Pacing::KeyingAndThinking;
        let can_lag = self.schedule.is_some() || has_own_times;
        let clients = 1 + u32::from(self.beside.is_some());
        let group = ClientGroup::new(&reactor, Recorder::new(1, 1, can_lag), clients, self.schedule);
        let events = RefCell::new(Vec::new());
        let (drained, done) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        let note_drained = || {
            if let Some(abandoned) = group.take_drained() {
                drained.borrow_mut().push((abandoned, reactor.now().0));
            }
        };
        let notify = |told: ClientEvent| match told {
            ClientEvent::Left => note_drained(),
            // Done by the control thread in a run.
            ClientEvent::Done => {
                done.borrow_mut().push(reactor.now().0);
                group.close();
            }
            ClientEvent::Error(error) => events.borrow_mut().push(format!("error: {error}")),
            ClientEvent::ServerLost(error) => events.borrow_mut().push(format!("lost: {error}")),
            ClientEvent::Failed(stage, error) => events.borrow_mut().push(format!("{stage}: {error}")),
            ClientEvent::Connected | ClientEvent::Calibrated { .. } => {}
        };
        let (user, rules) = (self.user, self.rules);
        let tally = RefCell::new(());
        let context = |connector, is_first| ClientContext {
            group: &group,
            reactor: &reactor,
            connector,
            rules,
            is_first,
            notify: &notify,
        };
        let client = Client::new(context(&self.server, true), user, &tally);
        let mut others: Vec<Routine<'_>> =
            vec![Box::pin(client.run()), Box::pin(Rc::clone(&self.server).serve(reactor.clone()))];
        if let Some(server) = &self.beside {
            let second = Client::new(context(server, false), Counting::default(), &tally);
            others.push(Box::pin(second.run()));
            others.push(Box::pin(Rc::clone(server).serve(reactor.clone())));
        }
        if self.calibrates {
            group.calibrate();
        }
        let director = async {
            for (serial, &(from, to)) in self.slices.iter().enumerate() {
                reactor.sleep_until(Nanos(from + self.opens_late)).await;
                let (opened, closes) = (Nanos(from), Nanos(to));
                let (serial, share) = (serial as u32, self.transactions.unwrap_or(u64::MAX));
                let window = Window {
                    serial,
                    target: 0,
                    is_measured: true,
                    is_last: serial as usize + 1 == self.slices.len(),
                    opened,
                    counted_from: opened + Nanos(self.discard),
                    closes,
                    share,
                };
                group.open(window);
                if let Some(at) = self.close_at.filter(|&at| at > from) {
                    reactor.sleep_until(Nanos(at)).await;
                    group.close();
                }
                if let Some(at) = self.abandon_at {
                    reactor.sleep_until(Nanos(at)).await;
                    group.abandon();
                }
                reactor.sleep_until(Nanos(to)).await;
                group.close();
                note_drained();
            }
            reactor.sleep_until(Nanos(self.lasts)).await;
        };
        reactor.run_concurrently(director, others).expect("a play to its end");
        let record = group.record.into_inner();
        let begun = record.begun;
        let (events, drained, done) = (events.take(), drained.take(), done.take());
        Played { record: record.finish(), begun, drained, done, events }
    }
}
