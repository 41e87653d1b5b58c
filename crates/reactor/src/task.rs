//! Number of a future.

/// The number of a future within its loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Task(pub(super) u32);
