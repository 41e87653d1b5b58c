//! Where the connections of a script come from.

use reactor::{Connection, Error};

/// Where a script's connections come from. The caller owns them.
#[allow(async_fn_in_trait)] // Futures stay on the thread that made them.
pub trait Links {
    /// Makes a connection and gives its number.
    async fn connect(&mut self) -> Result<u32, Error>;
    /// The connection of a number, while it is open.
    fn link(&mut self, number: u32) -> Option<&mut Connection>;
    /// Ends a connection.
    async fn disconnect(&mut self, number: u32) -> Result<(), Error>;
    /// What a script that has its own loop asks: 0 whether there is another event, 1 begins it, 2 ends it.
    async fn event(&mut self, what: u32) -> bool;
}

/// No connections: for scripts that are only loaded.
pub struct NoLinks;

impl Links for NoLinks {
    async fn connect(&mut self) -> Result<u32, Error> {
        Err(Error::Workload("there is no server to connect to".to_owned()))
    }

    fn link(&mut self, _: u32) -> Option<&mut Connection> {
        None
    }

    async fn disconnect(&mut self, _: u32) -> Result<(), Error> {
        Ok(())
    }

    async fn event(&mut self, _: u32) -> bool {
        false
    }
}
