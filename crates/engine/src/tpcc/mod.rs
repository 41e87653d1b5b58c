//! A workload derived from TPC-C: random numbers, population, transactions.
//!
//! Not comparable with published TPC results. `docs/engine.md` tells what of it is configurable.

pub mod population;
pub mod random;
pub mod schema;
