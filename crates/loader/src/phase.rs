//! The phases of a load.

use super::error::Stage;

/// What a part of the load does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Old tables dropped, new ones created.
    Create,
    /// Tables filled, and created where nothing else does.
    Copy,
    /// Primary keys, further indexes and foreign keys.
    Index,
    /// Visibility maps, and no autovacuum later on.
    Vacuum,
    /// Statistics.
    Analyze,
}

impl Phase {
    /// Its name in events.
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

    /// What a failure in it is called.
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
