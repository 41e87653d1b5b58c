//! sysbench's Lua scripts, unchanged, as a workload of the driver. Behavior follows sysbench 1.0.20 as documented and observed; no code of it is used.
//!
//! | question | place |
//! |---|---|
//! | what runs: script, options, limits | [`Program`], [`options`], [`Sources`]; sysbench's own scripts, written anew: [`stock`] |
//! | random numbers | [`random`] |
//! | one client's Lua state, and the API that scripts see | [`lua`], `lua/prelude.lua` |
//! | what a script asks for, carried out | [`ScriptClient`], [`session`] |
//! | queries by kind | [`counts`] |
//! | latencies as sysbench reports them | [`Histogram`] |
//! | workload of the driver | [`workload`] |
//! | tables of the stock scripts, by COPY | [`dataset`] |
//! | data of other scripts, by their `prepare` | [`prepare`] |

mod client;
pub mod counts;
mod dataset;
pub mod general;
mod histogram;
mod links;
mod lua;
pub mod options;
mod prepare;
mod program;
mod random;
mod session;
mod sources;
pub mod stock;
mod workload;

pub use client::{EventEnd, ScriptClient};
pub use dataset::{FORMAT, OltpDataset, OltpTables};
pub use histogram::Histogram;
pub use links::{Connections, EventLoop, Place, Told};
pub use prepare::ScriptData;
pub use program::{Program, ScriptError, random_options};
pub use random::RandomOptions;
pub use sources::Sources;
pub use workload::Sysbench;

/// The version of sysbench whose behavior this follows, as scripts see it.
pub const SYSBENCH_VERSION: &str = "1.0.20";
