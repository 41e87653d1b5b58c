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

mod dataset;
mod deviation;
mod input;
mod mix;
mod population;
mod procedures;
mod random;
mod schema;
mod specification;
mod statements;
mod sysbench_sql;
mod tally;
mod terminal;
mod workload;

pub use dataset::TpccTables;
pub use deviation::{Deviation, Deviations};
pub use schema::FORMAT;
pub use sysbench_sql::SYSBENCH_WAREHOUSES_MAX;
pub use workload::Tpcc;
