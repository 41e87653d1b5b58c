//! Connections: made, after asking for a password where one is wanted; or failed, in libpq's words.

use std::net::IpAddr;

use super::libpq::{error_text, print_notice};
use super::log::system_text;
use super::password;
use pgwire::conninfo::{Address, Conninfo};
use pgwire::{SqlState, WireError};
use reactor::{Attempt, Attempts, Connection, Error, Failure, Reactor};

const CLOSED: &str = "server closed the connection unexpectedly\n\
    \tThis probably means the server terminated abnormally\n\
    \tbefore or while processing the request.";
const NOBODY_AT_SOCKET: &str = "Is the server running locally and accepting connections on that socket?";
const NOBODY_AT_HOST: &str = "Is the server running on that host and accepting TCP/IP connections?";

/// A session whose notices are printed.
pub async fn connect(reactor: &Reactor, conninfo: &Conninfo) -> Result<Connection, Error> {
    let mut connection = Connection::connect(reactor, conninfo).await?;
    connection.on_notice(Some(print_notice));
    Ok(connection)
}

/// The first session of all. Where a password is wanted and none is given, it is asked for, once, and goes into
/// `conninfo`, as pgbench does it.
pub async fn connect_first(reactor: &Reactor, conninfo: &mut Conninfo) -> Result<Connection, Error> {
    match connect(reactor, conninfo).await {
        Err(error) if ask_if_wanted(&error, conninfo) => connect(reactor, conninfo).await,
        outcome => outcome,
    }
}

/// Asks for a password, if it was for want of one that no server let us in; whether there is another one to try.
pub fn ask_if_wanted(error: &Error, conninfo: &mut Conninfo) -> bool {
    let Error::Unconnected(attempts) = error else { return false };
    let is_wanted = matches!(attempts.refusal(), Some(Error::Wire(WireError::NoPassword { .. })));
    if is_wanted {
        let password = password::ask("Password: ").filter(|password| !password.is_empty());
        conninfo.use_password(password.as_deref());
    }
    is_wanted
}

/// Attempts that failed, each with its host.
#[must_use]
pub fn attempts_text(attempts: &Attempts) -> String {
    attempts.0.iter().map(attempt_text).collect::<Vec<_>>().join("\n")
}

fn attempt_text(attempt: &Attempt) -> String {
    let target = match (&attempt.address, &attempt.why) {
        (Address::Tcp { name, .. }, Failure::NoSuchHost(error)) => {
            let why = error.to_string();
            // Ahead of its own words, Rust's library says that it was a lookup that failed.
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
        Failure::TooLate => "timeout expired".to_owned(),
        Failure::NotLetIn(error) => {
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
        Error::Wire(WireError::NoPassword { .. }) => "fe_sendauth: no password supplied".to_owned(),
        Error::Wire(WireError::NoTls { .. }) => {
            "server does not support SSL, but SSL was required".to_owned()
        }
        Error::Wire(WireError::NotWanted { found }) => (*found).to_owned(),
        Error::Wire(wire) => match wire.told() {
            Some(told) => error_text(told, None),
            None => wire.to_string(),
        },
        other => other.to_string(),
    }
}
