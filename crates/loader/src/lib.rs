//! The loader: creates the tables of a dataset, fills them by COPY BINARY, frozen, makes the indexes.
//!
//! A [`dataset`] says what is to be done; several connections share the jobs of each round out, the costliest first.
//! Rows are generated straight into the connection's buffer. A load that fails or is stopped takes back what it did.

pub mod dataset;
mod error;
pub mod format;
mod load;
pub mod phase;
mod progress;
mod queue;
mod timing;
mod watch;
mod worker;

pub use dataset::Replaceable;
pub use error::{LoadError, Refused, Stage};
pub use load::{Emit, LoadOptions, load};
pub use watch::Watch;
