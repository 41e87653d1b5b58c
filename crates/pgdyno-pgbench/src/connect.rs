//! Connecting, with a password prompt if necessary, and with libpq's messages.

use super::libpq::print_notice;
use super::password;
use pgwire::conninfo::Conninfo;
use pgwire::startup::StartupError;
use reactor::{Connection, Error, Reactor};

/// Connects a session that prints notices.
pub async fn connect(reactor: &Reactor, conninfo: &Conninfo) -> Result<Connection, Error> {
    let mut connection = Connection::connect(reactor, conninfo).await?;
    connection.on_notice(Some(print_notice));
    Ok(connection)
}

/// Connects the first session.
///
/// As in pgbench, if a password is required and not given, it is prompted for once and stored in `conninfo`.
pub async fn connect_first(reactor: &Reactor, conninfo: &mut Conninfo) -> Result<Connection, Error> {
    match connect(reactor, conninfo).await {
        Err(error) if prompt_if_required(&error, conninfo) => connect(reactor, conninfo).await,
        outcome => outcome,
    }
}

/// Prompts for a password if connecting failed because none was given. Returns whether there is one to try.
pub fn prompt_if_required(error: &Error, conninfo: &mut Conninfo) -> bool {
    let Error::Unconnected(attempts) = error else { return false };
    let is_wanted = matches!(attempts.refusal(), Some(Error::Startup(StartupError::NoPassword { .. })));
    if is_wanted {
        let password = password::ask("Password: ").filter(|password| !password.is_empty());
        conninfo.use_password(password.as_deref());
    }
    is_wanted
}
