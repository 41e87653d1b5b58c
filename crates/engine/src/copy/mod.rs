//! The loader: creates the tables of a workload, fills them by COPY BINARY WITH FREEZE, makes the indexes.
//!
//! COPY freezes only what its own transaction created, so a table belongs to one connection; several
//! connections share the tables out, the costliest first. Rows are generated straight into the connection's buffer.
//! The row of `pgdyno_dataset` comes last: without it nothing here counts as a dataset. A load that fails or is
//! stopped drops what it created.

mod command;
mod error;
mod load;
mod phase;
mod progress;
mod specification;
mod target;
mod worker;

pub use command::command;
pub use error::{LoadError, Stage};
pub use load::run;
pub use specification::Specification;
