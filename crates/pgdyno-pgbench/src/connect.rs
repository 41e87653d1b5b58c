//! Connections: made, after asking for a password where one is wanted; or failed, in libpq's words.

use super::libpq::print_notice;
use super::password;
use pgwire::conninfo::Conninfo;
use pgwire::startup::StartupError;
use reactor::{Connection, Error, Reactor};

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
    let is_wanted = matches!(attempts.refusal(), Some(Error::Startup(StartupError::NoPassword { .. })));
    if is_wanted {
        let password = password::ask("Password: ").filter(|password| !password.is_empty());
        conninfo.use_password(password.as_deref());
    }
    is_wanted
}
