//! What a specification says of the workload.

use serde::Deserialize;

use super::deviation::{Deviation, Deviations};
use super::mix::MixSpecification;

/// The workload's part of a specification.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Specification {
    pub calls: Calls,
    #[serde(default)]
    pub pipeline: bool,
    pub isolation: Isolation,
    pub mix: MixSpecification,
    #[serde(default)]
    pub deviations: Deviations,
    /// Sets of tables (deviation `sysbench-sql`).
    #[serde(default = "one")]
    pub table_sets: u32,
}

/// Deviations that only the server-side routines have.
const OF_PROCEDURES: [Deviation; 5] = [
    Deviation::LiteralLastName,
    Deviation::Subtransactions,
    Deviation::UnusedItemCommitted,
    Deviation::AmountsAdded,
    Deviation::OrderNumberSkipped,
];

fn one() -> u32 {
    1
}

impl Specification {
    /// What does not go together.
    pub fn problem(&self) -> Option<&'static str> {
        let has = |deviation| self.deviations.has(deviation);
        let procedures = self.calls == Calls::Procedures;
        if !procedures && OF_PROCEDURES.into_iter().any(has) {
            return Some("deviations: some of them need calls procedures");
        }
        if has(Deviation::TextProtocol) && (procedures || self.pipeline) {
            return Some("deviations: text-protocol needs calls statements without pipeline");
        }
        if has(Deviation::SysbenchSql) {
            if !has(Deviation::TextProtocol) || !has(Deviation::NoRemoteWarehouse) {
                return Some("deviations: sysbench-sql needs text-protocol and no-remote-warehouse");
            }
        } else if self.table_sets != 1 {
            return Some("table_sets: more than one needs the deviation sysbench-sql");
        }
        if self.table_sets == 0 {
            return Some("table_sets: at least 1 is needed");
        }
        self.mix.problem()
    }
}

/// How transactions are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Calls {
    /// One server-side routine a transaction.
    Procedures,
    /// The client's SQL.
    Statements,
}

/// The isolation level of every transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[allow(missing_docs)] // The names of the SQL standard.
pub enum Isolation {
    #[serde(rename = "read committed")]
    ReadCommitted,
    #[serde(rename = "repeatable read")]
    RepeatableRead,
    #[serde(rename = "serializable")]
    Serializable,
}

impl Isolation {
    /// As SQL has it.
    pub fn sql(self) -> &'static str {
        match self {
            Self::ReadCommitted => "read committed",
            Self::RepeatableRead => "repeatable read",
            Self::Serializable => "serializable",
        }
    }
}
