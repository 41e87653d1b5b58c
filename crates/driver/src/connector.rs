//! Connection of the clients of a thread.

use std::cell::Cell;

use pgwire::conninfo::Conninfo;
use reactor::{Connection, Error, Gate, Nanos, Reactor};

/// Maximum number of clients that connect at the same time, over all threads. The listen queue of a server is
/// longer, but it accepts connections one by one.
const CONNECTING_MAX: u32 = 32;

/// Timeout of a CancelRequest for an abandoned transaction, because the server may not respond to it either. After a
/// stop, it adds to the 2 s for transactions in flight: the engine exits within 4 s.
const CANCEL_TIMEOUT: Nanos = Nanos(1_000_000_000);

/// Interface to connect a client.
pub trait Connect {
    /// Connects within the timeout of the run.
    async fn connect(&self, reactor: &Reactor) -> Result<Connection, Error>;
    /// Sends a CancelRequest for `connection`.
    async fn cancel(&self, connection: &Connection);
}

/// Connects the clients of one thread to one target, with a limit on concurrent connects.
pub struct Connector<'a> {
    conninfo: &'a Conninfo,
    timeout: Nanos,
    free: Cell<u32>,
    gate: Gate,
}

impl<'a> Connector<'a> {
    /// The connector of one of `threads` threads, which share the limit.
    pub fn new(conninfo: &'a Conninfo, timeout: Nanos, threads: u32) -> Self {
        let permits = (CONNECTING_MAX / threads).max(1);
        Self { conninfo, timeout, free: Cell::new(permits), gate: Gate::default() }
    }
}

impl Connect for Connector<'_> {
    async fn connect(&self, reactor: &Reactor) -> Result<Connection, Error> {
        let enter = || (self.free.get() > 0).then(|| self.free.set(self.free.get() - 1));
        self.gate.wait(reactor, enter).await;
        let connected =
            reactor.until(reactor.now() + self.timeout, Connection::connect(reactor, self.conninfo)).await;
        self.free.set(self.free.get() + 1);
        self.gate.notify_one(reactor);
        connected.unwrap_or(Err(Error::Timeout { waited_for: "connecting", limit: self.timeout }))
    }

    async fn cancel(&self, connection: &Connection) {
        let reactor = connection.reactor();
        // The server is already slow. The result of the request does not matter.
        let limit = self.timeout.min(CANCEL_TIMEOUT);
        let _ = reactor.until(reactor.now() + limit, connection.canceller().cancel(self.conninfo)).await;
    }
}
