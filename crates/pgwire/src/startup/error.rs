//! Why a connection does not become a session. No message holds a password.

use super::super::SqlState;
use super::super::backend::{ProtocolError, ServerError};
use super::super::frontend::EncodeError;

/// Why there is no session.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StartupError {
    /// The server says that the password is wrong.
    #[error(
        "the server refused user \"{user}\": wrong password; check password, PGPASSWORD or the password file"
    )]
    WrongPassword {
        /// The role.
        user: String,
        /// The server's own words.
        server_error: Box<ServerError>,
    },
    /// The server requires a password and none was given.
    #[error(
        "the server requires a password for user \"{user}\": give password, PGPASSWORD or a password file{note}"
    )]
    NoPassword {
        /// The role.
        user: String,
        /// Why the password file did not help; empty or in brackets.
        note: String,
    },
    /// The database does not exist.
    #[error("database \"{dbname}\" does not exist on this server: create it, or name another with dbname")]
    NoDatabase {
        /// The database.
        dbname: String,
        /// The server's own words.
        server_error: Box<ServerError>,
    },
    /// The server refused the connection for another reason.
    #[error("the server refused the connection: {0}")]
    Refused(Box<ServerError>),
    /// The server is older than we support.
    #[error("the server is PostgreSQL {version}: too old, pgdyno needs {oldest} or newer")]
    ServerTooOld {
        /// As it tells.
        version: String,
        /// The oldest that we support.
        oldest: u32,
    },
    /// The server wants a proof that we cannot give.
    #[error(
        "the server asks for authentication by {method}, which is not supported; \
             allow scram-sha-256, md5, password or trust for this user in pg_hba.conf"
    )]
    UnsupportedAuthentication {
        /// What it asks for.
        method: String,
    },
    /// The server did not prove that it knows our password.
    #[error("the server did not prove that it knows the password: it may not be the intended server")]
    ServerNotProven,
    /// `channel_binding=require`, and the server offers less.
    #[error("channel_binding=require, but the server offers {method}; use TLS and a SCRAM password")]
    NotBound {
        /// What it offers.
        method: String,
    },
    /// The server is not of the kind that `target_session_attrs` asks for.
    #[error("{found}, but target_session_attrs requires another kind of session")]
    WrongSessionAttrs {
        /// What it is, in libpq's words.
        found: &'static str,
    },
    /// The server talks on and on before it is ready.
    #[error("protocol violation: the server sent more than {limit} messages and was not ready for a query")]
    EndlessStartup {
        /// The limit.
        limit: u32,
    },
    /// The server broke the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// A message of ours cannot be written.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

impl StartupError {
    /// The server's own words, if the server sent this error.
    #[must_use]
    pub fn server_error(&self) -> Option<&ServerError> {
        match self {
            Self::WrongPassword { server_error, .. }
            | Self::NoDatabase { server_error, .. }
            | Self::Refused(server_error) => Some(server_error),
            _ => None,
        }
    }

    /// The server's code, if the server sent this error.
    #[must_use]
    pub fn sqlstate(&self) -> Option<SqlState> {
        self.server_error().map(|server_error| server_error.sqlstate)
    }
}
