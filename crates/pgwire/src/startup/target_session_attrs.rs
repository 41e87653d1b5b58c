//! Check of `target_session_attrs`.

use super::super::conninfo::TargetSessionAttrs;
use super::session::Session;

/// The property of the server that is required, and how it is read.
#[derive(Clone, Copy)]
pub(super) struct SessionRequirement {
    /// Query for older servers, which do not report the property.
    pub(super) question: &'static str,
    asks_for_recovery: bool,
    /// The required answer.
    answer: bool,
    /// libpq's description of a server that does not match.
    found: &'static str,
}

impl SessionRequirement {
    /// The requirement, `None` if any server is accepted.
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

    /// The property as reported by the server; `None` before version 14.
    pub(super) fn reported_by(self, session: &Session) -> Option<bool> {
        if self.asks_for_recovery { session.is_standby() } else { session.is_read_only() }
    }

    /// The description of a mismatch with this answer, `None` for a match.
    pub(super) fn wrong(self, answer: bool) -> Option<&'static str> {
        (answer != self.answer).then_some(self.found)
    }
}
