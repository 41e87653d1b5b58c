//! Why a run cannot begin: one line for a person each.

use pgwire::conninfo::ConninfoError;

/// A specification that cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum SpecificationError {
    /// It is not JSON, or not of the form of a specification.
    #[error("specification: {0}")]
    Json(#[from] serde_json::Error),
    /// A value is not allowed, or does not fit the others.
    #[error("specification: {problem}")]
    Value {
        /// Which one, and what is wrong with it.
        problem: String,
    },
    /// The connection string of a target cannot be used.
    #[error("target {target}: {source}")]
    Conninfo {
        /// The target's name.
        target: String,
        /// Why.
        source: ConninfoError,
    },
    /// The workload of all targets.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The workload that one target has of its own.
    #[error("target {target}: {source}")]
    TargetWorkload {
        /// The target's name.
        target: String,
        /// Why.
        source: WorkloadError,
    },
}

/// A slice that has neither a target nor targets, or both.
#[derive(Debug, thiserror::Error)]
#[error("a slice has either a target or targets")]
pub struct AmbiguousTargets;

/// The part of a specification that a workload reads.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// No workload is of this kind.
    #[error("workload: unknown kind {0}")]
    UnknownKind(String),
    /// It is not of the workload's form.
    #[error("workload: {0}")]
    Json(#[from] serde_json::Error),
    /// A value is not allowed.
    #[error("workload: {problem}")]
    Value {
        /// Which one, and what is wrong with it.
        problem: String,
    },
}

impl WorkloadError {
    /// A value that is not allowed: `problem` is an error of the workload's own.
    #[allow(clippy::needless_pass_by_value)] // So that it maps errors.
    pub fn value(problem: impl ToString) -> Self {
        Self::Value { problem: problem.to_string() }
    }
}
