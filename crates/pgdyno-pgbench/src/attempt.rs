//! Failed connection attempts, with libpq's messages.

use std::net::IpAddr;

use super::libpq::{error_text, system_text};
use pgwire::SqlState;
use pgwire::conninfo::Address;
use pgwire::startup::StartupError;
use pgwire::tls::TlsError;
use reactor::{Attempt, Attempts, Error, Failure};

const CLOSED: &str = "server closed the connection unexpectedly\n\
    \tThis probably means the server terminated abnormally\n\
    \tbefore or while processing the request.";
const NOBODY_AT_SOCKET: &str = "Is the server running locally and accepting connections on that socket?";
const NOBODY_AT_HOST: &str = "Is the server running on that host and accepting TCP/IP connections?";

/// Failed attempts, each with its host.
#[must_use]
pub fn attempts_text(attempts: &Attempts) -> String {
    attempts.0.iter().map(attempt_text).collect::<Vec<_>>().join("\n")
}

fn attempt_text(attempt: &Attempt) -> String {
    let target = match (&attempt.address, &attempt.why) {
        (Address::Tcp { name, .. }, Failure::NoSuchHost(error)) => {
            let why = error.to_string();
            // Rust's standard library prepends to the message that a lookup failed.
            let why = why.rsplit(": ").next().unwrap_or_default();
            return format!("could not translate host name \"{name}\" to address: {why}");
        }
        (Address::Unix(path), _) => format!("on socket \"{}\"", path.display()),
        (Address::Tcp { name, ip, port }, _) => {
            let shown = ip.map_or_else(|| name.clone(), |ip| ip.to_string());
            let found =
                attempt.place.map(|place| place.ip()).filter(|found: &IpAddr| found.to_string() != shown);
            let found = found.map(|found| format!(" ({found})")).unwrap_or_default();
            format!("at \"{shown}\"{found}, port {port}")
        }
    };
    format!("connection to server {target} failed: {}", why_text(attempt))
}

fn why_text(attempt: &Attempt) -> String {
    let nobody = match attempt.address {
        Address::Unix(_) => NOBODY_AT_SOCKET,
        Address::Tcp { .. } => NOBODY_AT_HOST,
    };
    match &attempt.why {
        Failure::NoSuchHost(error) => system_text(error),
        Failure::Unreachable(Error::System { source, .. }) => format!("{}\n\t{nobody}", system_text(source)),
        Failure::Unreachable(error) => error.to_string(),
        Failure::TimedOut => "timeout expired".to_owned(),
        Failure::Rejected(error) => {
            let is_wrong = error.sqlstate() == Some(SqlState::INVALID_PASSWORD);
            let from = attempt.password_file.as_ref().filter(|_| is_wrong);
            let from = from.map(|path| format!("\npassword retrieved from file \"{}\"", path.display()));
            refusal_text(error) + &from.unwrap_or_default()
        }
    }
}

fn refusal_text(error: &Error) -> String {
    match error {
        Error::Closed => CLOSED.to_owned(),
        Error::System { source, .. } => system_text(source),
        Error::Startup(StartupError::NoPassword { .. }) => "fe_sendauth: no password supplied".to_owned(),
        Error::Tls(TlsError::NoTls { .. }) => "server does not support SSL, but SSL was required".to_owned(),
        Error::Startup(StartupError::WrongSessionAttrs { found }) => (*found).to_owned(),
        Error::Startup(error) => match error.server_error() {
            Some(told) => error_text(told, None),
            None => error.to_string(),
        },
        other => other.to_string(),
    }
}
