//! Errors of a specification, each one line for the user.

/// An invalid specification.
#[derive(Debug, thiserror::Error)]
pub enum SpecificationError {
    /// It is not JSON, or does not have the form of a specification.
    #[error("specification: {0}")]
    Json(#[from] serde_json::Error),
    /// A value is not allowed, or contradicts others.
    #[error("specification: {problem}")]
    Value {
        /// The value and its problem.
        problem: String,
    },
    /// The workload of all targets.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The workload of one target.
    #[error("target {target}: {source}")]
    TargetWorkload {
        /// The target's name.
        target: String,
        /// The error.
        source: WorkloadError,
    },
}

/// An error in the workload's part of a specification.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// The kind of workload does not exist.
    #[error("workload: unknown kind {0}")]
    UnknownKind(String),
    /// It does not have the form of this workload.
    #[error("workload: {0}")]
    Json(#[from] serde_json::Error),
    /// A value is not allowed.
    #[error("workload: {problem}")]
    Value {
        /// The value and its problem.
        problem: String,
    },
}

impl WorkloadError {
    /// A value that is not allowed. `problem` is an error of the workload.
    #[allow(clippy::needless_pass_by_value)] // For use with map_err.
    pub fn value(problem: impl ToString) -> Self {
        Self::Value { problem: problem.to_string() }
    }
}
