//! PostgreSQL protocol 3.0 as bytes in and bytes out. No sockets, no clocks; one noted exception reads files
//! ([`conninfo::load`]).
//!
//! | question | place |
//! |---|---|
//! | what did the server say | [`backend`]: borrowed messages out of a buffer |
//! | what do we say | [`frontend`]: functions that append a message to a buffer |
//! | rows for COPY BINARY | [`copy`]; decimal numbers in both directions: [`numeric`] |
//! | whom to connect to, as whom | [`conninfo`]: libpq's connection strings, environment, password file |
//! | from a fresh connection to a ready session | [`startup`]; encryption beneath it: [`tls`] |

pub mod backend;
pub mod conninfo;
pub mod copy;
pub mod frontend;
pub mod numeric;
pub mod sqlstate;
pub mod startup;
pub mod tls;

#[cfg(test)]
mod tests;

pub use sqlstate::SqlState;
