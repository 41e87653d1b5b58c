//! What can go wrong with encryption.

use std::io;

use super::super::conninfo::SslMode;

/// Why a connection is not encrypted as it should be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TlsError {
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

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(error) => Self::Certificate(error),
            error => Self::Tls(error),
        }
    }
}

/// rustls reports a broken call sequence, which is a fault of ours, as an error of I/O.
impl From<io::Error> for TlsError {
    fn from(error: io::Error) -> Self {
        Self::Tls(rustls::Error::General(error.to_string()))
    }
}

impl TlsError {
    /// Whether TLS itself failed, or the server's certificate was refused: without TLS the connection may succeed.
    #[must_use]
    pub fn is_failed_handshake(&self) -> bool {
        matches!(self, Self::Tls(_) | Self::Certificate(_))
    }
}
