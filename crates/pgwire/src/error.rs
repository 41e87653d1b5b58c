//! What can go wrong between a connection string and a ready session, and in reading what a server sends.
//!
//! Messages are one line, say what failed, on what and what to do, and never hold a password.

use std::io;

use super::SqlState;
use super::backend::ServerError;
use super::conninfo::SslMode;

/// Every error of the wire layer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WireError {
    // ---- reading the server's messages
    /// The server sent a message type that the protocol does not have, or that a client never gets.
    #[error("protocol violation: unknown message type {tag:#04x}; is this a PostgreSQL server?")]
    UnknownMessage {
        /// The message's first byte.
        tag: u8,
    },
    /// A message's length field is under its own four bytes or over the limit.
    #[error("protocol violation: message '{tag}' claims {length_bytes} bytes (allowed: 4 to {limit_bytes})",
            tag = tag.escape_ascii())]
    MessageLength {
        /// The message's first byte.
        tag: u8,
        /// The length that it claims.
        length_bytes: u32,
        /// The longest that is allowed here.
        limit_bytes: u32,
    },
    /// The body of a message does not have the shape that its type prescribes.
    #[error("protocol violation: malformed {message}")]
    Malformed {
        /// The message's name in the protocol's documentation.
        message: &'static str,
    },
    /// A message that may not come at this point of the conversation.
    #[error("protocol violation: unexpected {message} while {doing}")]
    Unexpected {
        /// The message's name in the protocol's documentation.
        message: &'static str,
        /// What we were doing.
        doing: &'static str,
    },
    /// A row has no such column.
    #[error("the row has {columns} columns, column {column} was asked for")]
    NoColumn {
        /// Index, from 0.
        column: usize,
        /// Number of columns.
        columns: usize,
    },
    /// A column's value is NULL or not of the type asked for.
    #[error("column {column} is not a value of type {expected}")]
    ColumnType {
        /// Index, from 0.
        column: usize,
        /// The SQL name of the type asked for.
        expected: &'static str,
    },

    // ---- writing our messages
    /// A string of ours holds a zero byte, which the protocol cannot carry.
    #[error("{what} holds a zero byte, which PostgreSQL cannot take")]
    ZeroByte {
        /// What the string is.
        what: &'static str,
    },
    /// A message of ours would be longer than the protocol can carry.
    #[error("{what} is too long for one message of the protocol")]
    TooLong {
        /// What is too long.
        what: &'static str,
    },

    // ---- connection strings
    /// The connection string cannot be read.
    #[error("connection string: {problem}")]
    Conninfo {
        /// What is wrong, without any value that may be a password.
        problem: String,
    },
    /// The connection string has a keyword that libpq does not have.
    #[error("connection string: unknown keyword \"{keyword}\"")]
    UnknownKeyword {
        /// As written.
        keyword: String,
    },
    /// A keyword or variable that libpq has and we do not, with a value that we would have to honour.
    #[error("{setting}: {why}")]
    Unsupported {
        /// The keyword or variable.
        setting: String,
        /// Why not, and what to do instead.
        why: &'static str,
    },
    /// A keyword's value is not one of those allowed.
    #[error("{setting}: invalid value; expected {expected}")]
    InvalidValue {
        /// The keyword or variable.
        setting: String,
        /// What is allowed.
        expected: &'static str,
    },

    // ---- start-up
    /// The server says that the password is wrong.
    #[error(
        "the server refused user \"{user}\": wrong password; check password, PGPASSWORD or the password file"
    )]
    WrongPassword {
        /// The role.
        user: String,
        /// The server's own words.
        told: Box<ServerError>,
    },
    /// The server wants a password and none was given.
    #[error(
        "the server wants a password for user \"{user}\": give password, PGPASSWORD or a password file{note}"
    )]
    NoPassword {
        /// The role.
        user: String,
        /// Why the password file did not help; empty or in brackets.
        note: String,
    },
    /// The database does not exist.
    #[error("there is no database \"{dbname}\" on this server: create it, or name another with dbname")]
    NoDatabase {
        /// The database.
        dbname: String,
        /// The server's own words.
        told: Box<ServerError>,
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
             allow scram-sha-256, md5, password or trust for us in its pg_hba.conf"
    )]
    UnsupportedAuthentication {
        /// What it asks for.
        method: String,
    },
    /// The server did not prove that it knows our password.
    #[error("the server did not prove that it knows our password: it may not be the server that we mean")]
    ServerNotProven,
    /// `channel_binding=require`, and the server offers less.
    #[error("channel_binding=require, but the server offers {method}; it takes TLS and a SCRAM password")]
    NotBound {
        /// What it offers.
        method: String,
    },
    /// The server is not of the kind that `target_session_attrs` asks for.
    #[error("{found}, and target_session_attrs asks for another one")]
    NotWanted {
        /// What it is, in libpq's words.
        found: &'static str,
    },
    /// The server talks on and on before it is ready.
    #[error("protocol violation: the server sent more than {limit} messages and was not ready for a query")]
    EndlessStartup {
        /// The limit.
        limit: u32,
    },

    // ---- TLS
    /// The server does not speak TLS, and `sslmode` says that it must.
    #[error(
        "the server does not support TLS, and sslmode={sslmode} requires it; use sslmode=prefer or disable"
    )]
    NoTls {
        /// The mode.
        sslmode: SslMode,
    },
    /// The answer to SSLRequest is not one that a server gives.
    #[error("the server answered the request for TLS with byte {answer:#04x}; is this a PostgreSQL server?")]
    TlsAnswer {
        /// The byte.
        answer: u8,
    },
    /// More came before the encryption than the server's answer: somebody in between injects data.
    #[error(
        "unencrypted data came with the server's answer about TLS: somebody may be tampering with the connection"
    )]
    PlainWithTlsAnswer,
    /// The TLS layer failed.
    #[error("TLS: {0}")]
    Tls(rustls::Error),
    /// The server's certificate does not pass the check.
    #[error("the server's certificate was refused: {0}; check the host's name, sslrootcert and sslmode")]
    Certificate(rustls::CertificateError),
    /// There is nothing to verify the certificate with.
    #[error(
        "sslmode={sslmode} needs root certificates in {path}: {why}; give sslrootcert (a file, or system)"
    )]
    RootCertificates {
        /// The mode.
        sslmode: SslMode,
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The host's name cannot be in a certificate.
    #[error("sslmode=verify-full cannot verify \"{host}\": it is neither a host name nor an address")]
    HostName {
        /// As given.
        host: String,
    },
}

impl From<rustls::Error> for WireError {
    fn from(error: rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(error) => Self::Certificate(error),
            error => Self::Tls(error),
        }
    }
}

/// rustls reports a broken call sequence, which is a fault of ours, as an error of I/O.
impl From<io::Error> for WireError {
    fn from(error: io::Error) -> Self {
        Self::Tls(rustls::Error::General(error.to_string()))
    }
}

impl WireError {
    /// The server's own words, if the server sent this error.
    #[must_use]
    pub fn told(&self) -> Option<&ServerError> {
        match self {
            Self::WrongPassword { told, .. } | Self::NoDatabase { told, .. } | Self::Refused(told) => {
                Some(told)
            }
            _ => None,
        }
    }

    /// The server's code, if the server sent this error.
    #[must_use]
    pub fn sqlstate(&self) -> Option<SqlState> {
        self.told().map(|told| told.sqlstate)
    }
}
