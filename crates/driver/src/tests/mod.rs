//! The driver against a scripted server, by a clock that jumps: exact to the nanosecond, and without waiting.

mod clients;
mod control;
mod open_loop;
mod specification;
mod stage;
mod transactions;
