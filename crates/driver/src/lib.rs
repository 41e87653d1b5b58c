//! Clients, pacing, slices and the whole run; what is recorded of it. It knows no workload: who starts a run says how
//! the workload of a specification is read.
//!
//! | question | place |
//! |---|---|
//! | what a workload is to the driver | [`Workload`], [`User`]; one target's: `job` |
//! | one client, from gate to outcome | `client` |
//! | a thread's share of a target | `lane`; the thread itself: `worker` |
//! | when an open loop sends | `schedule` |
//! | what control and threads tell each other | `order` |
//! | what is driven when | `control`, one `slice` (`progress`), on which cores: `cores`; a whole run: [`run`] |
//! | what comes in and goes out | [`spec`], `event`; `docs/reference/engine-protocol.md` |
//! | counters, histograms, intervals | [`record`] |

mod client;
mod connector;
mod control;
mod cores;
mod error;
mod event;
mod job;
mod lane;
mod order;
mod progress;
mod random;
pub mod record;
mod run;
mod schedule;
mod slice;
pub mod spec;
mod worker;
mod workload;

#[cfg(test)]
mod tests;

pub use error::{SpecificationError, WorkloadError};
pub use job::AnyWorkload;
pub use order::Input;
pub use random::{Stream, derive_seed};
pub use run::{End, ReadWorkload, WorkloadContext, run};
pub use workload::{Ending, Seat, Tally, User, Workload};
