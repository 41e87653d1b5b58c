//! A disk whose power can be cut: one image file, served over FUSE, with a volatile write cache.
//!
//! [`cache`] is the pure model: writes are volatile until a flush, and a cut keeps none, all or some of them. [`disk`] adds faults and
//! counters, [`filesystem`] serves the disk over FUSE, and [`serve`] is the process: a specification and commands in lines of JSON.

mod cache;
mod disk;
mod filesystem;
pub mod serve;
mod store;
