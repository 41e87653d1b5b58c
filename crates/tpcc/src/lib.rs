//! A workload derived from TPC-C: random numbers, population, transactions.
//!
//! Not comparable with published TPC results. `docs/reference/engine-protocol.md` tells what of it is configurable.
//!
//! | question | place |
//! |---|---|
//! | streams, NURand, texts, last names | [`random`] |
//! | the rows before the first transaction | [`population`]; tables, SQL, sizes: [`schema`] |
//! | how the loader makes them | [`dataset`] |
//! | which kind comes next, with what inputs | [`mix`], [`input`] |
//! | the defects of other drivers | [`deviation`] |
//! | how a transaction is carried out | `procedures`, `statements`; their SQL in `sql/` |
//! | tables and statements of sysbench-tpcc | `sysbench_sql` |
//! | what the driver sees of it | [`workload`], [`terminal`]; what it counts: [`tally`] |

pub mod dataset;
pub mod deviation;
pub mod input;
pub mod mix;
pub mod population;
mod procedures;
pub mod random;
pub mod schema;
pub mod specification;
mod statements;
pub mod sysbench_sql;
pub mod tally;
pub mod terminal;
pub mod workload;

pub use workload::Tpcc;
