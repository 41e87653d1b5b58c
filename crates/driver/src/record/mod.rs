//! Counters, histograms and intervals, and the invariant that every transaction has exactly one outcome.
//!
//! Each thread has one [`Recorder`] per target; the control thread merges them. Nothing here reads a clock.

mod counts;
mod histogram;
mod recorder;

pub use counts::{Counts, Outcome};
pub use histogram::{HIGHEST, Histogram};
pub use recorder::{Kind, Recorder, Sample, merge_counters, merge_counts};
