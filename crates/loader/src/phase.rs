//! The phases of a load.

use super::error::Stage;

/// Phase of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Drop old tables, create new ones.
    Create,
    /// Fill tables, and create those that are not created before.
    Copy,
    /// Primary keys, further indexes and foreign keys.
    Index,
    /// Set visibility maps, so that autovacuum does not run later.
    Vacuum,
    /// Statistics.
    Analyze,
}

impl Phase {
    /// Phases of a dataset whose tables are created by the transaction that fills them, in order.
    pub const OF_NEW_TABLES: [Self; 4] = [Self::Copy, Self::Index, Self::Vacuum, Self::Analyze];

    /// Name in events.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Copy => "copy",
            Self::Index => "index",
            Self::Vacuum => "vacuum",
            Self::Analyze => "analyze",
        }
    }

    /// Stage of a failure in this phase.
    #[must_use]
    pub fn stage(self) -> Stage {
        match self {
            Self::Create => Stage::Create,
            Self::Copy => Stage::Copy,
            Self::Index => Stage::Index,
            Self::Vacuum | Self::Analyze => Stage::Analyze,
        }
    }
}
