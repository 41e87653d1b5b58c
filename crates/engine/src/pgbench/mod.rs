//! The language of pgbench, whole, as PostgreSQL 18's pgbench speaks it: expressions, variables, scripts, random numbers.
//!
//! No sockets and no clock: the driver asks for the next thing to do and does it. Where a message of an error reaches the
//! user it is pgbench's own, so that what reads pgbench's output can read ours.

pub mod expression;
pub mod random;
pub mod run;
pub mod script;
pub mod value;
pub mod variables;
