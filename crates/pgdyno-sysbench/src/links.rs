//! The connections of one client's script.

use std::cell::Cell;

use pgwire::conninfo::Conninfo;
use reactor::{Connection, Error, Reactor};
use sysbench::Links;

use super::bench::EventLoop;

/// Connections of a script: as many as it opens.
pub struct Connections<'a> {
    reactor: &'a Reactor,
    conninfo: &'a Conninfo,
    open: Vec<Option<Connection>>,
    /// The loop of events that a script of its own asks about.
    events: Option<&'a dyn EventLoop>,
    /// Whether any was opened.
    pub has_connected: Cell<bool>,
}

impl<'a> Connections<'a> {
    /// None yet.
    #[must_use]
    pub fn new(reactor: &'a Reactor, conninfo: &'a Conninfo, events: Option<&'a dyn EventLoop>) -> Self {
        Self { reactor, conninfo, open: Vec::new(), events, has_connected: Cell::new(false) }
    }

    /// Takes the connections of another one.
    pub fn take_over(&mut self, other: &mut Connections<'_>) {
        self.open = std::mem::take(&mut other.open);
        self.has_connected.set(other.has_connected.get());
    }
}

impl Links for Connections<'_> {
    async fn connect(&mut self) -> Result<u32, Error> {
        self.has_connected.set(true);
        let connection = match Box::pin(Connection::connect(self.reactor, self.conninfo)).await {
            Ok(connection) => connection,
            Err(error) => {
                super::report::fatal(format_args!("Connection to database failed: {error}"));
                return Err(error);
            }
        };
        self.open.push(Some(connection));
        Ok(self.open.len() as u32 - 1)
    }

    fn link(&mut self, number: u32) -> Option<&mut Connection> {
        self.open.get_mut(number as usize)?.as_mut()
    }

    async fn disconnect(&mut self, number: u32) -> Result<(), Error> {
        if let Some(place) = self.open.get_mut(number as usize) {
            *place = None;
        }
        Ok(())
    }

    async fn event(&mut self, what: u32) -> bool {
        match self.events {
            Some(events) => events.ask(what),
            None => false,
        }
    }
}
