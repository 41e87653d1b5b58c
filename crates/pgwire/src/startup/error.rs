//! Reasons why a session could not be started.

use crate::SqlState;
use crate::backend::{ProtocolError, ServerError};
use crate::frontend::EncodeError;

/// Reason why a session could not be started.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StartupError {
    /// The server rejected the password.
    #[error(
        "the server refused user \"{user}\": wrong password; check password, PGPASSWORD or the password file"
    )]
    WrongPassword {
        /// The role.
        user: String,
        /// The error of the server.
        server_error: Box<ServerError>,
    },
    /// The server requires a password and none was given.
    #[error(
        "the server requires a password for user \"{user}\": give password, PGPASSWORD or a password file{note}"
    )]
    NoPassword {
        /// The role.
        user: String,
        /// Reason why the password file was not used: empty or in parentheses.
        note: String,
    },
    /// The database does not exist.
    #[error("database \"{dbname}\" does not exist on this server: create it, or name another with dbname")]
    NoDatabase {
        /// The database.
        dbname: String,
        /// The error of the server.
        server_error: Box<ServerError>,
    },
    /// The server refused the connection for another reason.
    #[error("the server refused the connection: {0}")]
    Refused(Box<ServerError>),
    /// The server is older than the oldest supported version.
    #[error("the server is PostgreSQL {version}: too old, pgdyno needs {oldest} or newer")]
    ServerTooOld {
        /// As reported by the server.
        version: String,
        /// The oldest supported major version.
        oldest: u32,
    },
    /// The server requires an unsupported authentication method.
    #[error(
        "the server asks for authentication by {method}, which is not supported; \
             allow scram-sha-256, md5, password or trust for this user in pg_hba.conf"
    )]
    UnsupportedAuthentication {
        /// The required method.
        method: String,
    },
    /// The server did not prove that it knows the password.
    #[error("the server did not prove that it knows the password: it may not be the intended server")]
    ServerNotProven,
    /// `channel_binding=require`, and the server offers no channel binding.
    #[error("channel_binding=require, but the server offers {method}; use TLS and a SCRAM password")]
    NotBound {
        /// The offered method.
        method: String,
    },
    /// The server does not match `target_session_attrs`.
    #[error("{found}, but target_session_attrs requires another kind of session")]
    WrongSessionAttrs {
        /// Its property, in libpq's words.
        found: &'static str,
    },
    /// The server sent too many messages before ReadyForQuery.
    #[error("protocol violation: the server sent more than {limit} messages and was not ready for a query")]
    EndlessStartup {
        /// The limit.
        limit: u32,
    },
    /// The server violated the protocol.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// A message cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

impl StartupError {
    /// The startup error for an error of the server.
    pub(super) fn from_server(error: &ServerError, user: &str, dbname: &str) -> Self {
        let server_error = Box::new(error.clone());
        match error.sqlstate {
            SqlState::INVALID_PASSWORD => Self::WrongPassword { user: user.to_owned(), server_error },
            SqlState::INVALID_CATALOG_NAME => Self::NoDatabase { dbname: dbname.to_owned(), server_error },
            _ => Self::Refused(server_error),
        }
    }

    /// The error of the server, if the server sent this error.
    #[must_use]
    pub fn server_error(&self) -> Option<&ServerError> {
        match self {
            Self::WrongPassword { server_error, .. }
            | Self::NoDatabase { server_error, .. }
            | Self::Refused(server_error) => Some(server_error),
            _ => None,
        }
    }

    /// The SQLSTATE, if the server sent this error.
    #[must_use]
    pub fn sqlstate(&self) -> Option<SqlState> {
        self.server_error().map(|server_error| server_error.sqlstate)
    }
}
