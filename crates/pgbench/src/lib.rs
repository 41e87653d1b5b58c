//! The language of pgbench, whole, as PostgreSQL 18's pgbench speaks it: expressions, variables, scripts, random numbers.
//!
//! The language has no sockets and no clock: who runs it asks for the next thing to do and does it. That is [`session`],
//! a client with its connection; [`workload`] is its place in the driver. Where a message of an error reaches the user
//! it is pgbench's own, so that what reads pgbench's output can read ours.
//!
//! [`script`] reads files into commands, [`expression`] is the language of `\set` and `\if`, [`variables`] hold what it
//! works on as [`value`]s, [`random`] is where chance comes from, and [`run`] takes one client through a script: the driver
//! needs [`script::Scripts`], [`run::Startup`] and [`run::Client`]. [`initialise`] makes the tables, by the loader.
//!
//! Known differences from pgbench, all where it does something undefined or would not end: `abs()` of a boolean is an
//! error, so is NaN as a parameter of a random function, a colon that ends a statement stays a colon, the time of
//! `\sleep` does not overflow. Operands nest [`expression::DEPTH_MAX`] deep, there are [`variables::VARIABLES_MAX`]
//! variables, and a script has [`script::SCRIPT_BYTES_MAX`] bytes.

mod effort;
pub mod expression;
pub mod initialise;
pub mod random;
pub mod run;
pub mod script;
pub mod session;
pub mod value;
pub mod variables;
pub mod workload;
