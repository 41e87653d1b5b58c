//! The loader: creates the tables of a workload, fills them by COPY BINARY, frozen, makes the indexes.
//!
//! A `dataset` says what is to be done; several connections share the jobs of each round out, the costliest first.
//! Rows are generated straight into the connection's buffer. A load that fails or is stopped takes back what it did.

mod command;
pub(crate) mod dataset;
mod error;
pub(crate) mod format;
mod load;
pub(crate) mod phase;
mod progress;
mod specification;
mod timing;
mod tpcc;
mod watch;
mod worker;

pub use command::command;
pub use error::{LoadError, Refused, Stage};
pub use load::run;
pub(crate) use load::{Order, load};
pub use specification::{Replaceable, Specification};
