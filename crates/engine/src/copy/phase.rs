//! The phases of a load and the tables that are still to be done in one.

use std::sync::Mutex;

use super::error::Stage;
use crate::tpcc::population::{TABLES, Table};

/// A part of the load that every connection finishes before any begins the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Tables created and filled.
    Copy,
    /// Primary keys and further indexes.
    Index,
    /// Visibility maps, and no autovacuum later on: see `worker`.
    Vacuum,
    /// Statistics.
    Analyze,
}

/// In the order of their work.
pub const PHASES: [Phase; 4] = [Phase::Copy, Phase::Index, Phase::Vacuum, Phase::Analyze];

impl Phase {
    /// Its name in events.
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Index => "index",
            Self::Vacuum => "vacuum",
            Self::Analyze => "analyze",
        }
    }

    /// What a failure in it is called.
    pub fn stage(self) -> Stage {
        match self {
            Self::Copy => Stage::Copy,
            Self::Index => Stage::Index,
            Self::Vacuum | Self::Analyze => Stage::Analyze,
        }
    }
}

/// Tables that wait for a connection, the costliest first: whoever is free takes the next.
pub struct Queue(Mutex<std::slice::Iter<'static, Table>>);

impl Queue {
    /// All tables.
    pub fn new() -> Self {
        Self(Mutex::new(TABLES.iter()))
    }

    /// The next table.
    pub fn take(&self) -> Option<Table> {
        self.0.lock().ok()?.next().copied()
    }
}
