//! The loop, connections, and the clock that tests replace.
//!
//! One [`Reactor`] serves one thread. It polls its futures itself: a client is its future, and what wakes it
//! is its connection's readiness (which epoll tells, or io_uring, that sends as well), its deadline, a [`Gate`] of the
//! same thread or a [`Mailbox`] of another one. No runtime, no wakers, no channels between client and connection, and no allocation per transaction.

mod affinity;
mod cipher;
mod clock;
mod connect;
mod connection;
mod error;
mod gate;
mod inbox;
mod mailbox;
mod mapped;
mod pool;
mod prefetch;
mod process;
mod reactor;
mod readiness;
mod ring;
mod shell;
mod socket;
mod standard;
mod task;
mod timers;

#[cfg(test)]
mod tests;

pub use affinity::{CORES_MAX, KeptServer, core_set, keep_thread_to};
pub use clock::{Clock, Nanos};
pub use connect::Canceller;
pub use connection::{Connection, OnNotice, TextRows};
pub use error::{Attempt, Attempts, Error, Failure, ServerError};
pub use gate::Gate;
pub use inbox::Seen;
pub use mailbox::{Mailbox, Sender, mailbox};
pub use mapped::{MappedCounters, read_counters};
pub use pgwire::backend::TransactionStatus;
pub use process::{
    Usage, catch_termination, file_limit, memory_peak_bytes, raise_file_limit, thread_usage, usage,
};
pub use reactor::{Io, Reactor, Routine};
pub use shell::{Shared, ShellOutput, shell};
pub use socket::Socket;
pub use standard::{end_with_reader, print, tell};
pub use task::Task;
