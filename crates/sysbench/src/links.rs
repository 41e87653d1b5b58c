//! Where the connections of a script come from.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::counts::Counts;
use pgwire::conninfo::Conninfo;
use reactor::{Canceller, Connection, Error, Reactor};

/// Where a script's connections come from. The caller owns them.
#[allow(async_fn_in_trait)] // Futures stay on the thread that made them.
pub trait Links {
    /// Makes a connection and gives its number.
    async fn connect(&mut self) -> Result<u32, Error>;
    /// The connection of a number, while it is open.
    fn link(&mut self, number: u32) -> Option<&mut Connection>;
    /// Ends a connection.
    async fn disconnect(&mut self, _number: u32) -> Result<(), Error> {
        Ok(())
    }
    /// What a script that has its own loop asks: 0 whether there is another event, 1 begins it, 2 ends it.
    /// `counts`: what the script has counted so far.
    async fn event(&mut self, _what: u32, _counts: &Counts) -> bool {
        false
    }
}

/// The answer of an [`EventLoop`], when it is known.
pub type Told<'a> = Pin<Box<dyn Future<Output = bool> + 'a>>;

/// What a script that has its own loop asks of its caller.
pub trait EventLoop {
    /// 0: is there another event? Waits until it is due. 1: it begins. 2: it has ended.
    /// `counts`: what the script has counted so far.
    fn ask(&self, what: u32, counts: &Counts) -> Told<'_>;
}

/// Where connections of a script go to.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The loop that waits.
    pub reactor: &'a Reactor,
    /// The server.
    pub conninfo: &'a Conninfo,
    /// Who is told why a connection could not be made.
    pub on_refusal: fn(&Error),
    /// Can cancel their statements.
    pub canceller: Option<&'a Canceller>,
    /// Is set when a connection has been made.
    pub is_used: Option<&'a AtomicBool>,
}

/// The connections of a script: as many as it opens.
pub struct Connections<'a> {
    place: Place<'a>,
    open: Vec<Option<Connection>>,
    events: Option<&'a dyn EventLoop>,
}

impl<'a> Connections<'a> {
    /// None yet. `events`: those of a script with its own loop.
    #[must_use]
    pub fn new(place: Place<'a>, events: Option<&'a dyn EventLoop>) -> Self {
        Self { place, open: Vec::new(), events }
    }

    /// The loop that waits.
    #[must_use]
    pub fn reactor(&self) -> &'a Reactor {
        self.place.reactor
    }

    /// Takes the connections of another one.
    pub fn take_over(&mut self, other: &mut Connections<'_>) {
        self.open = std::mem::take(&mut other.open);
    }
}

impl Links for Connections<'_> {
    async fn connect(&mut self) -> Result<u32, Error> {
        let Place { reactor, conninfo, on_refusal, canceller, is_used } = self.place;
        let connection = Box::pin(Connection::connect(reactor, conninfo)).await.inspect_err(on_refusal)?;
        if let Some(canceller) = canceller {
            canceller.add(&connection);
        }
        if let Some(is_used) = is_used {
            is_used.store(true, Relaxed);
        }
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

    async fn event(&mut self, what: u32, counts: &Counts) -> bool {
        match self.events {
            Some(events) => events.ask(what, counts).await,
            None => false,
        }
    }
}
