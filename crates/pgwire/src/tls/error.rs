//! Errors of TLS.

use std::io;

use super::super::conninfo::SslMode;

/// Reason why a connection is not encrypted as required.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TlsError {
    /// The server does not support TLS, which `sslmode` requires.
    #[error(
        "the server does not support TLS, and sslmode={sslmode} requires it; use sslmode=prefer or disable"
    )]
    NoTls {
        /// The mode.
        sslmode: SslMode,
    },
    /// The response to SSLRequest is invalid.
    #[error("the server answered the request for TLS with byte {answer:#04x}; is this a PostgreSQL server?")]
    TlsAnswer {
        /// The byte.
        answer: u8,
    },
    /// Plaintext followed the response to SSLRequest: an attacker injects data.
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
    /// Root certificates are missing or unreadable.
    #[error(
        "sslmode={sslmode} needs root certificates in {path}: {why}; give sslrootcert (a file, or system)"
    )]
    RootCertificates {
        /// The mode.
        sslmode: SslMode,
        /// The file.
        path: String,
        /// The reason.
        why: String,
    },
    /// The host name cannot be in a certificate.
    #[error("sslmode=verify-full cannot verify \"{host}\": it is neither a host name nor an address")]
    HostName {
        /// As given.
        host: String,
    },
}

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(error) => Self::Certificate(error),
            error => Self::Tls(error),
        }
    }
}

/// rustls reports an incorrect call sequence, a defect of this crate, as an I/O error.
impl From<io::Error> for TlsError {
    fn from(error: io::Error) -> Self {
        Self::Tls(rustls::Error::General(error.to_string()))
    }
}

impl TlsError {
    /// Whether TLS or the verification of the certificate failed: a connection without TLS may succeed.
    #[must_use]
    pub fn is_failed_handshake(&self) -> bool {
        matches!(self, Self::Tls(_) | Self::Certificate(_))
    }
}
