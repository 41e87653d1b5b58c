//! PostgreSQL protocol 3.0, independent of I/O. The only exception reads files ([`conninfo::load`]).
//!
//! | topic | module |
//! |---|---|
//! | messages of the server | [`backend`]: borrowed from a buffer |
//! | messages of the client | [`frontend`]: functions that append a message to a buffer |
//! | rows for COPY BINARY | [`copy`]; decimal numbers in both directions: [`numeric`] |
//! | connection strings, environment and password file of libpq | [`conninfo`] |
//! | startup of a session | [`startup`]; encryption below it: [`tls`] |

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
