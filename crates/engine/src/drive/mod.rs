//! Clients, pacing, slices and the whole run.
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

mod client;
mod control;
mod cores;
mod event;
mod job;
mod lane;
mod order;
mod progress;
mod random;
mod run;
mod schedule;
mod select_only;
mod slice;
pub mod spec;
mod worker;
mod workload;

#[cfg(test)]
mod tests;

pub use order::Input;
pub use random::{Stream, derive_seed};
pub use run::{End, run};
pub use workload::{Ending, Seat, Tally, User, Workload};
