//! Engine of pgdyno: the process with which the Python side exchanges lines of JSON
//! (`docs/reference/engine-protocol.md`).
//!
//! It registers the workloads: a new one adds a line to [`drive`], and to [`load`] if it has tables.

pub mod check;
pub mod drive;
pub mod ledger;
pub mod load;
pub mod select_only;
