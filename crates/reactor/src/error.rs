//! Errors of connections.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use super::Nanos;
use pgwire::SqlState;
use pgwire::backend::ProtocolError;
pub use pgwire::backend::ServerError;
use pgwire::conninfo::{Address, Conninfo, Host};
use pgwire::frontend::EncodeError;
use pgwire::startup::StartupError;
use pgwire::tls::TlsError;

/// Errors of a connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server reported an error. The connection is usable, unless [`Error::is_fatal`].
    #[error("{0}")]
    Server(Box<ServerError>),
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The server violated the protocol; the connection is unusable.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// A message cannot be encoded; the connection is unusable.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The session could not be started.
    #[error(transparent)]
    Startup(#[from] StartupError),
    /// TLS failed; the connection is unusable.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The server exceeded a limit of the client; the connection is unusable.
    #[error("the server exceeded a limit of the driver: {0}")]
    Limit(&'static str),
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    System {
        /// The attempted action, as in "cannot …".
        action: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The server could not be reached.
    #[error("{0}")]
    Connect(String),
    /// No server accepted the session.
    #[error("{0}")]
    Unconnected(Attempts),
    /// The server did not respond in time.
    #[error(
        "no answer from the server within {} s while {waited_for}; check that it runs and that the network passes its answers",
        limit.as_s()
    )]
    Timeout {
        /// The operation.
        waited_for: &'static str,
        /// The time limit.
        limit: Nanos,
    },
    /// The driver abandoned the transaction.
    #[error("abandoned by the driver: the slice did not drain in time")]
    Abandoned,
    /// The workload cannot continue, for example because the tables do not match its specification.
    #[error("{0}")]
    Workload(String),
    /// The fake clock cannot advance: all futures wait and there is no deadline.
    #[error("deadlock: every future waits and no deadline is set")]
    Stalled,
}

impl Error {
    /// A failed system call.
    #[must_use]
    pub fn system(action: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { action: action.into(), source: source.into() }
    }

    /// Fails because the workload cannot continue.
    pub fn unusable<T>(why: impl Into<String>) -> Result<T, Self> {
        Err(Self::Workload(why.into()))
    }

    /// The SQLSTATE, if the server sent one.
    #[must_use]
    pub fn sqlstate(&self) -> Option<SqlState> {
        match self {
            Self::Server(error) => Some(error.sqlstate),
            Self::Startup(error) => error.sqlstate(),
            Self::Unconnected(attempts) => attempts.refusal()?.sqlstate(),
            _ => None,
        }
    }

    /// Whether it is a serialization failure or deadlock: the same transaction may succeed when retried.
    pub fn is_retryable(&self) -> bool {
        self.sqlstate().is_some_and(SqlState::is_retryable)
    }

    /// Whether the connection is unusable.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        match self {
            Self::Server(error) => error.severity != "ERROR",
            Self::Workload(_) => false,
            _ => true,
        }
    }
}

/// Runs the work of a thread. A panic, whose message is on standard error, becomes an error.
pub fn catch_panic<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let panicked = |_| Err(Error::Workload("a thread panicked; standard error has its message".to_owned()));
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(panicked)
}

/// One connection attempt.
#[derive(Debug)]
pub struct Attempt {
    /// The requested address.
    pub address: Address,
    /// The resolved address of a TCP host; `None` if it could not be resolved.
    pub place: Option<SocketAddr>,
    /// The password file, if the password comes from it.
    pub password_file: Option<PathBuf>,
    /// The reason of the failure.
    pub why: Failure,
}

/// Reason of a failed attempt.
#[derive(Debug)]
pub enum Failure {
    /// The host name could not be resolved.
    NoSuchHost(io::Error),
    /// The connection could not be established.
    Unreachable(Error),
    /// `connect_timeout` has expired.
    TimedOut,
    /// The server rejected the session.
    Rejected(Error),
}

/// All attempts in order, at least one.
#[derive(Debug)]
pub struct Attempts(pub Vec<Attempt>);

impl Attempt {
    /// A failed attempt to connect to a host.
    pub(super) fn new(conninfo: &Conninfo, host: &Host, place: Option<SocketAddr>, why: Failure) -> Self {
        let password_file = conninfo.passfile.clone().filter(|_| host.is_password_from_file);
        Self { address: host.address.clone(), place, password_file, why }
    }
}

impl Attempts {
    /// The error of the last attempt, if a server answered it.
    #[must_use]
    pub fn refusal(&self) -> Option<&Error> {
        match &self.0.last()?.why {
            Failure::Rejected(error) => Some(error),
            _ => None,
        }
    }
}

/// Remedy if nothing answered.
const NO_SERVER: &str = "; is a server running there?";

/// Whether the reason may be that no server runs there.
fn may_lack_server(kind: ErrorKind) -> bool {
    use ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, TimedOut};
    matches!(kind, ConnectionRefused | HostUnreachable | NetworkUnreachable | TimedOut)
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = &self.address;
        let failed = |f: &mut fmt::Formatter<'_>, why: &dyn fmt::Display, hint: &str| {
            write!(f, "cannot connect to {address}: {why}{hint}")
        };
        match (&self.why, address) {
            (Failure::NoSuchHost(error), Address::Tcp { name, .. }) => {
                write!(f, "cannot find the host {name}: {error}")
            }
            (Failure::NoSuchHost(error), Address::Unix(_)) => failed(f, error, ""),
            (Failure::Unreachable(Error::System { source, .. }), Address::Unix(_))
                if source.kind() == ErrorKind::NotFound =>
            {
                failed(f, &"no such socket", NO_SERVER)
            }
            (Failure::Unreachable(Error::System { source, .. }), _) => {
                failed(f, source, if may_lack_server(source.kind()) { NO_SERVER } else { "" })
            }
            (Failure::Unreachable(error), _) => failed(f, error, ""),
            (Failure::TimedOut, _) => write!(f, "cannot connect to {address}: no answer in time"),
            (Failure::Rejected(error), _) => error.fmt(f),
        }
    }
}

impl fmt::Display for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut texts: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        // With and without TLS the error may be the same.
        texts.dedup();
        f.write_str(&texts.join("; "))
    }
}
