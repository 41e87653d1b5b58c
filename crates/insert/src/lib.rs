//! A workload after the insert benchmark: tables that are queues. Rows enter at the high end of the primary key and leave
//! at the low end, while three secondary indexes are changed at random places.
//!
//! | question | place |
//! |---|---|
//! | what a load and a run are asked for | [`specification`] |
//! | values of rows, and their text | [`values`] |
//! | the rows before the first operation, and how the loader makes them | [`dataset`] |
//! | the operations | [`workload`]; counts of what was drawn: [`tally`]; SQL in `sql/` |
//! | when a client may send its next operation | [`pace`] |

mod dataset;
mod pace;
mod specification;
mod tally;
mod values;
mod workload;

pub use dataset::{FORMAT, InsertDataset};
pub use specification::InsertTables;
pub use workload::InsertBenchmark;
