//! Runs and loads against a real PostgreSQL.
//!
//! Runs when `PGDYNO_TEST_PG_BIN` names a directory of PostgreSQL's binaries (10 or newer); says that it was
//! skipped when not. As root the server runs as the user `postgres`.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod driving;
mod loading;
mod sysbench_scripts;
