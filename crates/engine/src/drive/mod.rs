//! Clients, pacing, slices and the whole run.

mod workload;

pub use workload::{Ending, Seat, Tally, User, Workload};
