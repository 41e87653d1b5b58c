//! Startup of a session on a new connection, on which TLS is established if required.
//!
//! [`Startup::begin`] writes the first message. Each message of the server goes to [`Startup::on_message`],
//! which appends the response and returns whether the session is ready. Read the messages with
//! [`super::backend::parse_startup`].

mod error;
mod scram;

use std::collections::BTreeMap;

pub use error::StartupError;
pub use scram::Channel;

use scram::Authenticator;

use super::backend::{Authentication, Message, ProtocolError};
use super::conninfo::{Conninfo, Host, TargetSessionAttrs};
use super::frontend;

/// Maximum number of messages before the session is ready. A server sends about 20; a hostile one could send
/// them forever.
const MESSAGES_MAX: u32 = 256;

/// State of the startup.
enum Phase {
    /// Authentication.
    Authenticating(Box<Authenticator>),
    /// Authenticated; the server reports its settings.
    Configuring,
    /// The query of the requirement was sent to an old server; `answer` is `Some` after its response.
    Asking { requirement: SessionRequirement, answer: Option<bool> },
    /// Completed.
    Ready,
}

/// Startup of a session.
pub struct Startup {
    phase: Phase,
    session: Session,
    user: String,
    dbname: String,
    requirement: Option<SessionRequirement>,
    messages: u32,
}

impl Startup {
    /// Appends the startup message for one host of a connection string.
    pub fn begin(
        conninfo: &Conninfo,
        host: &Host,
        channel: Channel,
        out: &mut Vec<u8>,
    ) -> Result<Self, StartupError> {
        let optional = [
            ("options", conninfo.options.as_deref()),
            ("application_name", conninfo.application_name.as_deref()),
        ];
        let parameters = [("user", conninfo.user.as_str()), ("database", conninfo.dbname.as_str())];
        let optional = optional.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let more = conninfo.parameters.iter().map(|(name, value)| (*name, value.as_str()));
        frontend::startup(out, parameters.into_iter().chain(optional).chain(more))?;
        Ok(Self {
            phase: Phase::Authenticating(Box::new(Authenticator::new(conninfo, host, channel))),
            session: Session::default(),
            user: conninfo.user.clone(),
            dbname: conninfo.dbname.clone(),
            requirement: SessionRequirement::of(conninfo.target_session_attrs),
            messages: 0,
        })
    }

    /// Handles one message and appends the response, if any. Returns `true` once the session is ready.
    pub fn on_message(&mut self, message: &Message<'_>, out: &mut Vec<u8>) -> Result<bool, StartupError> {
        self.messages += 1;
        if self.messages > MESSAGES_MAX {
            return Err(StartupError::EndlessStartup { limit: MESSAGES_MAX });
        }
        match message {
            Message::NoticeResponse(_) => Ok(false),
            Message::ErrorResponse(fields) => {
                Err(StartupError::from_server(&fields.to_owned(), &self.user, &self.dbname))
            }
            message => self.advance(message, out),
        }
    }

    /// The session, after [`Startup::on_message`] returned `true`.
    #[must_use]
    pub fn into_session(self) -> Session {
        self.session
    }

    fn advance(&mut self, message: &Message<'_>, out: &mut Vec<u8>) -> Result<bool, StartupError> {
        match (&mut self.phase, message) {
            (Phase::Authenticating(authenticator), Message::Authentication(Authentication::Ok)) => {
                authenticator.finish()?;
                self.phase = Phase::Configuring;
            }
            (Phase::Authenticating(authenticator), Message::Authentication(demand)) => {
                authenticator.answer(demand, out)?;
            }
            (Phase::Configuring | Phase::Asking { .. }, Message::ParameterStatus { name, value }) => {
                self.session.set_parameter(name, value);
            }
            (Phase::Configuring, Message::BackendKeyData { process_id, secret_key }) => {
                self.session.key = Some((*process_id, *secret_key));
            }
            (Phase::Configuring, Message::ReadyForQuery(_)) => return self.on_ready(out),
            (Phase::Asking { answer, .. }, Message::DataRow(row)) => {
                *answer = Some(matches!(row.text(0)?, "on" | "t"));
            }
            (Phase::Asking { .. }, Message::RowDescription(_) | Message::CommandComplete(_)) => {}
            (Phase::Asking { requirement, answer: Some(answer) }, Message::ReadyForQuery(_)) => {
                let wrong = requirement.wrong(*answer);
                return self.end(wrong);
            }
            (phase, message) => {
                let unexpected = ProtocolError::Unexpected { message: message.name(), doing: phase.doing() };
                return Err(unexpected.into());
            }
        }
        Ok(false)
    }

    /// Handles ReadyForQuery: checks `target_session_attrs`.
    fn on_ready(&mut self, out: &mut Vec<u8>) -> Result<bool, StartupError> {
        self.session.check_version()?;
        let Some(requirement) = self.requirement else { return self.end(None) };
        if let Some(answer) = requirement.reported_by(&self.session) {
            return self.end(requirement.wrong(answer));
        }
        frontend::query(out, requirement.question)?;
        self.phase = Phase::Asking { requirement, answer: None };
        Ok(false)
    }

    /// Completes the startup, or fails with a mismatch.
    fn end(&mut self, wrong: Option<&'static str>) -> Result<bool, StartupError> {
        if let Some(found) = wrong {
            return Err(StartupError::WrongSessionAttrs { found });
        }
        self.phase = Phase::Ready;
        Ok(true)
    }
}

impl Phase {
    fn doing(&self) -> &'static str {
        match self {
            Self::Authenticating(_) => "logging in",
            Self::Configuring => "waiting for the session to be ready",
            Self::Asking { .. } => "asking of which kind the server is",
            Self::Ready => "the session had already started",
        }
    }
}

/// The oldest supported major version.
const VERSION_MIN: u32 = 10;

/// Key and initial settings of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Session {
    /// Process ID and secret key for a CancelRequest. A pooler may not send them.
    pub key: Option<(i32, i32)>,
    parameters: BTreeMap<String, String>,
}

impl Session {
    /// A setting that the server reported, such as `server_version`.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    fn set_parameter(&mut self, name: &[u8], value: &[u8]) {
        let [name, value] = [name, value].map(|text| String::from_utf8_lossy(text).into_owned());
        self.parameters.insert(name, value);
    }

    /// Fails for a server older than `VERSION_MIN`. One that reports no version may be a pooler and is
    /// accepted.
    fn check_version(&self) -> Result<(), StartupError> {
        let version = self.parameter("server_version").unwrap_or_default();
        let major = version.split(|c: char| !c.is_ascii_digit()).next().and_then(|major| major.parse().ok());
        match major {
            Some(0..VERSION_MIN) => {
                Err(StartupError::ServerTooOld { version: version.to_owned(), oldest: VERSION_MIN })
            }
            _ => Ok(()),
        }
    }

    /// Whether sessions are read-only; `None` before version 14, which does not report it.
    fn is_read_only(&self) -> Option<bool> {
        let read_only = self.parameter("default_transaction_read_only")?;
        Some(self.is_standby()? || read_only == "on")
    }

    /// Whether the server is in recovery; `None` before version 14, which does not report it.
    fn is_standby(&self) -> Option<bool> {
        self.parameter("in_hot_standby").map(|standby| standby == "on")
    }
}

/// The property of the server that is required, and how it is read.
#[derive(Clone, Copy)]
struct SessionRequirement {
    /// Query for older servers, which do not report the property.
    question: &'static str,
    asks_for_recovery: bool,
    /// The required answer.
    answer: bool,
    /// libpq's description of a server that does not match.
    found: &'static str,
}

impl SessionRequirement {
    /// The requirement, `None` if any server is accepted.
    fn of(target: TargetSessionAttrs) -> Option<Self> {
        let writes = |answer, found| {
            Some(Self { question: "SHOW transaction_read_only", asks_for_recovery: false, answer, found })
        };
        let recovers = |answer, found| {
            let question = "SELECT pg_catalog.pg_is_in_recovery()";
            Some(Self { question, asks_for_recovery: true, answer, found })
        };
        match target {
            TargetSessionAttrs::Any => None,
            TargetSessionAttrs::ReadWrite => writes(false, "session is read-only"),
            TargetSessionAttrs::ReadOnly => writes(true, "session is not read-only"),
            TargetSessionAttrs::Primary => recovers(false, "server is in hot standby mode"),
            TargetSessionAttrs::Standby | TargetSessionAttrs::PreferStandby => {
                recovers(true, "server is not in hot standby mode")
            }
        }
    }

    /// The property as reported by the server; `None` before version 14.
    fn reported_by(self, session: &Session) -> Option<bool> {
        if self.asks_for_recovery { session.is_standby() } else { session.is_read_only() }
    }

    /// The description of a mismatch with this answer, `None` for a match.
    fn wrong(self, answer: bool) -> Option<&'static str> {
        (answer != self.answer).then_some(self.found)
    }
}
