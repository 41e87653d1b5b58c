//! pgbench's four tables, made as `pgbench -i` of PostgreSQL 18 makes them, by the loader.
//!
//! | question | place |
//! |---|---|
//! | what may be asked for | [`specification`] |
//! | names, columns and statements | `tables` |
//! | the rows | `rows` |
//! | which row belongs to which partition | `partition` |
//! | what is in the database already | `existing`; its queries in `sql/` |
//! | which step does what, in which order | `dataset`, `plan` |

mod dataset;
mod existing;
mod partition;
mod plan;
mod rows;
pub mod specification;
mod tables;

#[cfg(test)]
mod tests;

pub use dataset::PgbenchTables;
pub use specification::{Initialise, InitialiseError};
pub use tables::FORMAT;
