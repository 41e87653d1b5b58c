//! The driver with a scripted server and a fake clock: exact to the nanosecond, and without waiting.

mod clients;
mod control;
mod open_loop;
mod run;
mod specification;
mod stage;
mod transactions;
