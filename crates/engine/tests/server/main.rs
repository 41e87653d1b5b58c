//! Runs and loads with a real PostgreSQL server.
//!
//! They run if `PGDYNO_TEST_PG_BIN` names a directory with PostgreSQL binaries (10 or newer), and otherwise
//! print that they are skipped. As root, the server runs as the user `postgres`.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod driving;
mod loading;
mod parts;
mod sysbench_scripts;
