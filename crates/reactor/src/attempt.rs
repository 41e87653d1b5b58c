//! Attempts to connect that failed: where they went, and why.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::PathBuf;

use super::Error;
use pgwire::conninfo::{Address, Conninfo, Host};

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
    TooLate,
    /// Somebody was there, who did not let us in.
    NotLetIn(Error),
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
            Failure::NotLetIn(error) => Some(error),
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
            (Failure::TooLate, _) => write!(f, "cannot connect to {address}: no answer in time"),
            (Failure::NotLetIn(error), _) => error.fmt(f),
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
