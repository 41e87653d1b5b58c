//! The engine of pgdyno: the process that its Python side talks to, in lines of JSON. `docs/reference/engine-protocol.md` is its interface.
//!
//! It registers the workloads: a new workload adds a line to [`drive`], and to [`load`] if it has tables.

pub mod check;
pub mod drive;
pub mod load;
pub mod select_only;
