//! Loader: creates the tables of a dataset, fills them with COPY BINARY and FREEZE, creates indexes.
//!
//! A [`dataset`] defines the work. Several connections share the jobs of each round, the most expensive first.
//! Rows are generated directly into the connection's buffer. A load that fails or is stopped cleans up.

pub mod dataset;
mod error;
pub mod format;
mod load;
pub mod phase;
mod progress;
pub mod replace;
mod timing;
mod watch;
mod worker;

pub use dataset::Replaceable;
pub use error::{LoadError, Refused, Stage};
pub use load::{Emit, LoadOptions, load};
pub use watch::Watch;
