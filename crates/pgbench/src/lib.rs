//! pgbench's script language, complete as of PostgreSQL 18: expressions, variables, scripts, random numbers.
//!
//! The language performs no I/O and reads no clock: its caller asks for the next step and executes it.
//! [`session`] does this for a client with a connection; [`workload`] integrates it with the driver. Messages
//! shown to the user are identical to pgbench's, so that programs that parse pgbench's output also work.
//!
//! [`script`] parses files into commands, [`expression`] is the language of `\set` and `\if`, [`variables`]
//! hold [`value`]s, [`random`] has the generators, and [`run`] takes one client through a script. The driver
//! needs [`script::Scripts`], [`run::Startup`] and [`run::Client`]. [`initialise`] creates the tables with the
//! loader.
//!
//! Known differences exist only where pgbench's behavior is undefined or does not terminate: `abs()` of a
//! boolean and NaN as a parameter of a random function are errors, a colon at the end of a statement stays a
//! colon, and the time of `\sleep` does not overflow. Operands nest up to [`expression::DEPTH_MAX`] levels,
//! there are at most [`variables::VARIABLES_MAX`] variables, and a script has at most
//! [`script::SCRIPT_BYTES_MAX`] bytes. `\sample` is an addition of the engine; pgdyno-pgbench does not know it.

mod effort;
mod expression;
pub mod initialise;
pub mod random;
pub mod run;
pub mod script;
pub mod session;
mod value;
mod variables;
mod workload;

pub use value::leading_int;
pub use workload::{Pgbench, ScriptChoice};
