//! pgbench's four tables, created by the loader as `pgbench -i` of PostgreSQL 18 creates them.
//!
//! | topic | module |
//! |---|---|
//! | options | [`specification`] |
//! | names, columns and statements | `tables` |
//! | rows | `rows` |
//! | assignment of rows to partitions | `partition` |
//! | existing tables | `existing`; its queries in `sql/` |
//! | steps and their order | `dataset`, `plan` |

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
pub use specification::Initialise;
pub use tables::FORMAT;
