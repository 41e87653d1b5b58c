//! The engine of pgdyno: it loads data into PostgreSQL and drives load at it, and measures both.
//!
//! The modules follow the way of a byte: [`wire`] (bytes of the protocol, no sockets), [`io`] (the
//! loop, connections, the clock), [`record`] (counters and histograms), [`drive`] (clients, pacing,
//! slices, the whole run), [`tpcc`] and [`pgbench`] (the workloads: random numbers, population, transactions; the language
//! of scripts) and [`copy`] (the loader). It knows nothing of Python: `docs/reference/engine-protocol.md` is its interface.

pub mod copy;
pub mod drive;
pub mod io;
pub mod pgbench;
pub mod record;
pub mod tpcc;
pub mod wire;
