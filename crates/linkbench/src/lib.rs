//! A workload after LinkBench, the benchmark of a social graph: data, operations, SQL.
//!
//! It follows two programs: that of Facebook (2011), and its fork with PostgreSQL support.
//!
//! | question | place |
//! |---|---|
//! | editions, specification | [`specification`] |
//! | which node has how many links, which ids are chosen | [`graph`]; tables of out-degrees: [`degree`]; ranks: [`zipf`] |
//! | bytes and times of rows | [`values`] |
//! | the rows before the first operation, and how the loader makes them | [`dataset`] |
//! | which operation comes next, with what inputs | [`operation`]; what is counted of them: [`tally`] |
//! | how it is executed | [`workload`]; its SQL in `sql/` |

mod dataset;
mod degree;
mod graph;
mod operation;
mod specification;
mod tally;
mod values;
mod workload;
mod zipf;

pub use dataset::{FORMAT, LinkBenchDataset};
pub use specification::LinkBenchTables;
pub use workload::LinkBench;
