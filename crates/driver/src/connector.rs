//! Connecting the clients of a thread.

use std::cell::Cell;

use pgwire::conninfo::Conninfo;
use reactor::{Connection, Error, Gate, Nanos, Reactor};

/// Clients that connect at the same time, all threads together. A server's queue holds more, but it takes them one by
/// one anyway.
const CONNECTING_MAX: u32 = 32;

/// Limit on asking a server to end a transaction that was given up: it may be silent on this connection, too.
const CANCEL_TIMEOUT: Nanos = Nanos(5_000_000_000);

/// Connects a client.
pub trait Connect {
    /// Connects, within the limits of the run.
    async fn connect(&self, reactor: &Reactor) -> Result<Connection, Error>;
    /// Asks the server, by another connection, to end what `connection` is doing.
    async fn cancel(&self, connection: &Connection);
}

/// Connects the clients of one thread to one target; limits how many connect at the same time.
pub struct Connector<'a> {
    conninfo: &'a Conninfo,
    timeout: Nanos,
    free: Cell<u32>,
    gate: Gate,
}

impl<'a> Connector<'a> {
    /// The connector of one of so many threads, which share the limit.
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
        // The server is slow as it is. Whether it took the request in does not matter to us.
        let limit = self.timeout.min(CANCEL_TIMEOUT);
        let _ = reactor.until(reactor.now() + limit, connection.cancel(self.conninfo)).await;
    }
}
