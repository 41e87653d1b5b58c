//! Load driver: clients, pacing, slices, recording and complete runs.
//!
//! It is independent of workloads: the caller of [`run`] passes a function that reads the workload of a specification.
//!
//! | topic | module or item |
//! |---|---|
//! | interface of workloads | [`Workload`], [`User`]; type-erased: [`AnyWorkload`] |
//! | one client: transactions, retries, outcomes | `client`; its connection: `connector` |
//! | clients of one target in one thread | `client_group`; the thread: `worker` |
//! | windows of slices, arrivals of an open loop | `schedule` |
//! | commands to threads, reports from them | `messages` |
//! | control thread | `control`, one `slice`, CPU partition: `cores`; a complete run: [`run`] |
//! | specification and events | `spec`, `event_writer`; `docs/reference/engine-protocol.md` |
//! | counters, histograms, intervals | `record` |

mod any_workload;
mod client;
mod client_group;
mod connector;
mod control;
mod cores;
mod error;
mod event_writer;
mod messages;
mod random;
mod record;
mod run;
mod schedule;
mod slice;
mod spec;
mod worker;
mod workload;

#[cfg(test)]
mod tests;

pub use any_workload::{AnyWorkload, erase};
pub use error::{SpecificationError, WorkloadError};
pub use messages::Input;
pub use random::{Stream, derive_seed};
pub use record::{HIGHEST, Histogram};
pub use run::{End, ReadWorkload, WorkloadContext, run};
pub use workload::{ClientId, Ending, Tally, User, Workload};
