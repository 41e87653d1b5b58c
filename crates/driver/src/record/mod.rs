//! Counters, histograms and intervals, and the identity that every transaction ends in exactly one outcome.
//!
//! A thread keeps one [`Recorder`] for each target; the control thread merges them. Nothing here knows a clock.

mod counts;
mod encoding;
mod histogram;
mod recorder;

pub use counts::{Counts, Outcome};
use histogram::{DIGITS, LOWEST};
pub use histogram::{HIGHEST, Histogram};
pub use recorder::{Finished, Kind, Recorder, Sample, merge_counters, merge_counts};
