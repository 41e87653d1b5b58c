//! Buffers of a terminal.

/// Buffers that a terminal keeps, so that none is allocated for a transaction.
#[derive(Default)]
pub struct Scratch {
    /// Customers of one last name.
    pub customers: Vec<i32>,
    /// SQL by [`super::sql::Statement`], if it is sent as text.
    pub texts: Vec<String>,
}
