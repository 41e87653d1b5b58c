//! Connecting, with a password prompt if necessary, and with libpq's messages.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Write};
use std::net::IpAddr;
use std::os::fd::AsFd;

use pgwire::SqlState;
use pgwire::conninfo::{Address, Conninfo};
use pgwire::startup::StartupError;
use pgwire::tls::TlsError;
use reactor::{Attempt, Attempts, Connection, Error, Failure, Reactor};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use super::libpq::{error_text, print_notice, system_text};

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
        let password = ask("Password: ").filter(|password| !password.is_empty());
        conninfo.use_password(password.as_deref());
    }
    is_wanted
}

const CLOSED: &str = "server closed the connection unexpectedly\n\
    \tThis probably means the server terminated abnormally\n\
    \tbefore or while processing the request.";
const NOBODY_AT_SOCKET: &str = "Is the server running locally and accepting connections on that socket?";
const NOBODY_AT_HOST: &str = "Is the server running on that host and accepting TCP/IP connections?";

/// Failed attempts, each with its host.
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

/// Prompts on the terminal, or on standard error and standard input without one, as PostgreSQL's programs do.
///
/// `None` at the end of the input.
pub fn ask(prompt: &str) -> Option<String> {
    if let Ok(terminal) = OpenOptions::new().read(true).write(true).open("/dev/tty") {
        let _hidden = Hidden::new(&terminal);
        return ask_by(prompt, &mut &terminal, &mut BufReader::new(&terminal));
    }
    let stdin = io::stdin();
    let _hidden = Hidden::new(&stdin);
    ask_by(prompt, &mut io::stderr(), &mut stdin.lock())
}

fn ask_by(prompt: &str, out: &mut dyn Write, input: &mut dyn BufRead) -> Option<String> {
    // The prompt may not be visible, but the user may still answer.
    let _ = out.write_all(prompt.as_bytes()).and_then(|()| out.flush());
    let mut line = Vec::new();
    let read = input.read_until(b'\n', &mut line);
    // The newline was not echoed, either.
    let _ = out.write_all(b"\n");
    read.ok().filter(|&read| read > 0)?;
    let line = String::from_utf8_lossy(&line);
    Some(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// A terminal without echo, restored when dropped.
struct Hidden<'a, F: AsFd> {
    terminal: &'a F,
    before: Option<Termios>,
}

impl<'a, F: AsFd> Hidden<'a, F> {
    fn new(terminal: &'a F) -> Self {
        // Without a terminal there is no echo.
        let before = tcgetattr(terminal).ok();
        if let Some(before) = &before {
            let mut hidden = before.clone();
            hidden.local_modes -= LocalModes::ECHO;
            let _ = tcsetattr(terminal, OptionalActions::Flush, &hidden);
        }
        Self { terminal, before }
    }
}

impl<F: AsFd> Drop for Hidden<'_, F> {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(self.terminal, OptionalActions::Flush, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_the_line_without_its_newline() {
        let cases = [
            ("secret\n", Some("secret")),
            (" a b \r\n", Some(" a b ")),
            ("last", Some("last")),
            ("\n", Some("")),
            ("", None),
        ];
        for (typed, password) in cases {
            let mut asked = Vec::new();
            assert_eq!(
                ask_by("Password: ", &mut asked, &mut typed.as_bytes()).as_deref(),
                password,
                "{typed:?}"
            );
            assert_eq!(asked, b"Password: \n");
        }
    }
}
