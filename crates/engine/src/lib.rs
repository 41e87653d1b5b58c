//! The engine of pgdyno: the process that its Python side talks to, in lines of JSON. `docs/reference/engine-protocol.md` is its interface.
//!
//! It registers the workloads with the driver and the loader: a workload is one more line in [`drive`], and in [`load`]
//! where it has tables.

pub mod check;
pub mod drive;
pub mod load;
pub mod select_only;
