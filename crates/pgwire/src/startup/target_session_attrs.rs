//! Whether a server is of the kind that is wanted.

use super::super::conninfo::TargetSessionAttrs;
use super::session::Session;

/// What decides, and how.
#[derive(Clone, Copy)]
pub(super) struct SessionRequirement {
    /// What an older server is asked, which does not tell by itself.
    pub(super) question: &'static str,
    asks_for_recovery: bool,
    /// The answer that is wanted.
    answer: bool,
    /// What libpq says of the other one.
    found: &'static str,
}

impl SessionRequirement {
    /// Nothing, if every server will do.
    pub(super) fn of(target: TargetSessionAttrs) -> Option<Self> {
        let writes = |answer, found| {
            Some(Self { question: "SHOW transaction_read_only", asks_for_recovery: false, answer, found })
        };
        let recovers = |answer, found| {
            let question = "SELECT pg_catalog.pg_is_in_recovery()";
            Some(Self { question, asks_for_recovery: true, answer, found })
        };
        match target {
            TargetSessionAttrs::Any => None,
            TargetSessionAttrs::ReadWrite => writes(false, "session is read-only"),
            TargetSessionAttrs::ReadOnly => writes(true, "session is not read-only"),
            TargetSessionAttrs::Primary => recovers(false, "server is in hot standby mode"),
            TargetSessionAttrs::Standby | TargetSessionAttrs::PreferStandby => {
                recovers(true, "server is not in hot standby mode")
            }
        }
    }

    /// What the server told by itself; nothing before 14.
    pub(super) fn reported_by(self, session: &Session) -> Option<bool> {
        if self.asks_for_recovery { session.is_standby() } else { session.is_read_only() }
    }

    /// What is wrong with a server of which this is true.
    pub(super) fn wrong(self, answer: bool) -> Option<&'static str> {
        (answer != self.answer).then_some(self.found)
    }
}
