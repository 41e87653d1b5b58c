//! What can go wrong between us and a server.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::PathBuf;

use super::Nanos;
use pgwire::SqlState;
use pgwire::backend::ProtocolError;
pub use pgwire::backend::ServerError;
use pgwire::conninfo::{Address, Conninfo, Host};
use pgwire::frontend::EncodeError;
use pgwire::startup::StartupError;
use pgwire::tls::TlsError;

/// Everything that a connection can fail with.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server reported an error. The connection lives on, unless [`Error::is_fatal`].
    #[error("{0}")]
    Server(Box<ServerError>),
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The server broke the protocol; the connection is of no more use.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// A message cannot be written; the connection is of no more use.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The connection did not become a session.
    #[error(transparent)]
    Startup(#[from] StartupError),
    /// Encryption failed; the connection is of no more use.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The server did what the protocol allows, but beyond our limits; the connection is of no more use.
    #[error("the server exceeded a limit of the driver: {0}")]
    Limit(&'static str),
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried, as the rest of "cannot …".
        action: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The server could not be reached.
    #[error("{0}")]
    Connect(String),
    /// No server let us in.
    #[error("{0}")]
    Unconnected(Attempts),
    /// The server was silent for too long.
    #[error(
        "no answer from the server within {} s while {waited_for}; check that it runs and that the network passes its answers",
        limit.as_s()
    )]
    Timeout {
        /// What the answer was to.
        waited_for: &'static str,
        /// How long it was waited for.
        limit: Nanos,
    },
    /// The driver gave the transaction up.
    #[error("abandoned by the driver: the slice did not drain in time")]
    Abandoned,
    /// The workload met something that it cannot go on with, e.g. tables that do not fit its specification.
    #[error("{0}")]
    Workload(String),
    /// The fake clock stands still: every future waits and no deadline is set.
    #[error("deadlock: every future waits and no deadline is set")]
    Stalled,
}

impl Error {
    /// A failed system call.
    pub(crate) fn system(action: impl Into<String>, errno: rustix::io::Errno) -> Self {
        Self::System { action: action.into(), source: errno.into() }
    }

    /// The SQLSTATE, where the server gave one.
    #[must_use]
    pub fn sqlstate(&self) -> Option<SqlState> {
        match self {
            Self::Server(error) => Some(error.sqlstate),
            Self::Startup(error) => error.sqlstate(),
            Self::Unconnected(attempts) => attempts.refusal()?.sqlstate(),
            _ => None,
        }
    }

    /// Serialization failures and deadlocks: the same transaction may succeed when tried again.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.sqlstate().is_some_and(SqlState::is_retryable)
    }

    /// Whether the connection is of no more use.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        match self {
            Self::Server(error) => error.severity != "ERROR",
            Self::Workload(_) => false,
            _ => true,
        }
    }
}

/// One attempt.
#[derive(Debug)]
pub struct Attempt {
    /// What was to be reached.
    pub address: Address,
    /// What its name stood for, over TCP; none where it stood for nothing.
    pub place: Option<SocketAddr>,
    /// The file that the password is from, if it is from one.
    pub password_file: Option<PathBuf>,
    /// Why it failed.
    pub why: Failure,
}

/// Why an attempt failed.
#[derive(Debug)]
pub enum Failure {
    /// The host's name stands for no address.
    NoSuchHost(io::Error),
    /// There was no way there, or nobody.
    Unreachable(Error),
    /// `connect_timeout` was over.
    TimedOut,
    /// Somebody was there, who did not let us in.
    Rejected(Error),
}

/// All attempts, in order; there is one at least.
#[derive(Debug)]
pub struct Attempts(pub Vec<Attempt>);

impl Attempt {
    /// One to reach a host.
    pub(super) fn new(conninfo: &Conninfo, host: &Host, place: Option<SocketAddr>, why: Failure) -> Self {
        let password_file = conninfo.passfile.clone().filter(|_| host.is_password_from_file);
        Self { address: host.address.clone(), place, password_file, why }
    }
}

impl Attempts {
    /// Why the last one failed, if somebody was there.
    #[must_use]
    pub fn refusal(&self) -> Option<&Error> {
        match &self.0.last()?.why {
            Failure::Rejected(error) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = &self.address;
        let unreachable = |f: &mut fmt::Formatter<'_>, why: &dyn fmt::Display| {
            write!(f, "cannot connect to {address}: {why}; is a server running there?")
        };
        match (&self.why, address) {
            (Failure::NoSuchHost(error), Address::Tcp { name, .. }) => {
                write!(f, "cannot find the host {name}: {error}")
            }
            (Failure::NoSuchHost(error), Address::Unix(_)) => unreachable(f, error),
            (Failure::Unreachable(Error::System { source, .. }), Address::Unix(_))
                if source.kind() == ErrorKind::NotFound =>
            {
                unreachable(f, &"no such socket")
            }
            (Failure::Unreachable(Error::System { source, .. }), _) => unreachable(f, source),
            (Failure::Unreachable(error), _) => unreachable(f, error),
            (Failure::TimedOut, _) => write!(f, "cannot connect to {address}: no answer in time"),
            (Failure::Rejected(error), _) => error.fmt(f),
        }
    }
}

impl fmt::Display for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut texts: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        // With and without TLS the server may say the same.
        texts.dedup();
        f.write_str(&texts.join("; "))
    }
}
