//! Event loop, connections, and a clock that tests can replace.
//!
//! One [`Reactor`] serves one thread. It polls its futures itself: a client is a future, woken by the readiness
//! of its connection (epoll, or io_uring, which also sends), its deadline, a [`Gate`] of the same thread or a
//! [`Mailbox`] of another one. There is no async runtime, no waker, no channel between client and connection,
//! and no allocation per transaction.

mod affinity;
mod cipher;
mod clock;
mod connect;
mod connection;
mod error;
mod gate;
mod inbox;
mod mailbox;
mod pool;
mod prefetch;
mod process;
mod reactor;
mod readiness;
mod ring;
mod shell;
mod socket;
mod standard;
mod timers;

#[cfg(test)]
mod tests;

pub use affinity::{CORES_MAX, KeptServer, core_set, keep_thread_to};
pub use clock::{Clock, Nanos, kernel_now};
pub use connect::Canceller;
pub use connection::{Connection, OnNotice, TextRows};
pub use error::{Attempt, Attempts, Error, Failure, ServerError, catch_panic};
pub use gate::Gate;
pub use inbox::Seen;
pub use mailbox::{Mailbox, Sender, mailbox};
pub use pgwire::backend::TransactionStatus;
pub use process::{
    Usage, catch_termination, file_limit, memory_peak_bytes, raise_file_limit, thread_usage, usage,
};
pub use reactor::{Io, Reactor, Routine};
pub use shell::{Shared, ShellOutput, shell};
pub use socket::Socket;
pub use standard::{end_with_reader, print, take_streams, tell};
pub use timers::Task;
