//! TLS without I/O: the response to SSLRequest, the client configuration, and a session that converts between
//! plaintext and ciphertext.

mod certificate;
pub(crate) mod shared;

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use certificate::{Roots, Verifier};
use rustls::client::Resumption;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};

use super::conninfo::{Address, Conninfo, Host, RootCertificates, SslMode};

/// Encryption of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encryption {
    /// Not encrypted.
    Plain,
    /// TLS.
    Tls,
}

/// The encryption of the first connection attempt. Unix sockets are never encrypted.
#[must_use]
pub fn first_attempt(sslmode: SslMode, address: &Address) -> Encryption {
    match (address, sslmode) {
        (Address::Unix(_), _) | (_, SslMode::Disable | SslMode::Allow) => Encryption::Plain,
        _ => Encryption::Tls,
    }
}

/// The encryption of the second attempt, after a failure that the other encryption may prevent.
///
/// `allow` and `prefer` try the other way if the server rejected the session or TLS failed, because
/// `pg_hba.conf` may require it.
#[must_use]
pub fn second_attempt(sslmode: SslMode, address: &Address, used: Encryption) -> Option<Encryption> {
    match (address, sslmode, used) {
        (Address::Tcp { .. }, SslMode::Allow, Encryption::Plain) => Some(Encryption::Tls),
        (Address::Tcp { .. }, SslMode::Prefer, Encryption::Tls) => Some(Encryption::Plain),
        _ => None,
    }
}

/// Reads the response to SSLRequest from the received bytes; `None` if there are none yet.
///
/// A server that supports TLS sends one byte and waits. Further plaintext bytes are an injection that tries to
/// pass as decrypted data (CVE-2021-23222).
pub fn read_answer(received: &[u8], sslmode: SslMode) -> Result<Option<Encryption>, TlsError> {
    match received {
        [] => Ok(None),
        [b'S'] => Ok(Some(Encryption::Tls)),
        [b'N', ..] if sslmode >= SslMode::Require => Err(TlsError::NoTls { sslmode }),
        [b'N'] => Ok(Some(Encryption::Plain)),
        [b'S' | b'N', ..] => Err(TlsError::PlainWithTlsAnswer),
        [answer, ..] => Err(TlsError::TlsAnswer { answer: *answer }),
    }
}

/// The TLS session of one connection.
pub struct TlsSession {
    connection: ClientConnection,
}

impl TlsSession {
    /// Starts a session. [`TlsSession::write_pending`] returns its first bytes.
    pub fn begin(config: Arc<ClientConfig>, host: &Host, sslmode: SslMode) -> Result<Self, TlsError> {
        let connection = ClientConnection::new(config, server_name(host, sslmode)?).map_err(TlsError::Tls)?;
        Ok(Self { connection })
    }

    /// Whether the handshake is in progress: transfer bytes both ways until it is not.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Appends pending bytes (handshake, alerts, encrypted data) to `cipher`.
    pub fn write_pending(&mut self, cipher: &mut Vec<u8>) -> Result<(), TlsError> {
        while self.connection.wants_write() {
            // Writing to a vector cannot fail.
            self.connection.write_tls(cipher)?;
        }
        Ok(())
    }

    /// Encrypts `plain` and appends the result to `cipher`.
    pub fn write_plain(&mut self, plain: &[u8], cipher: &mut Vec<u8>) -> Result<(), TlsError> {
        let mut rest = plain;
        while !rest.is_empty() {
            let taken = self.connection.writer().write(rest)?;
            rest = &rest[taken..];
            self.write_pending(cipher)?;
        }
        Ok(())
    }

    /// Decrypts all of `received` into `plain`, and appends the bytes to send back to `answer`.
    ///
    /// On an error `answer` contains the alert for the server.
    pub fn read_cipher(
        &mut self,
        received: &[u8],
        plain: &mut Vec<u8>,
        answer: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        let mut rest = received;
        while !rest.is_empty() {
            let read = self.connection.read_tls(&mut rest)?;
            let state = match self.connection.process_new_packets() {
                Ok(state) => state,
                Err(e) => {
                    self.write_pending(answer)?;
                    return Err(e.into());
                }
            };
            self.take_plain(state.plaintext_bytes_to_read(), plain)?;
            if read == 0 {
                break;
            }
        }
        self.write_pending(answer)
    }

    /// The certificate hash for channel binding; `None` if it is not defined.
    #[must_use]
    pub fn end_point_hash(&self) -> Option<Vec<u8>> {
        certificate::end_point_hash(self.connection.peer_certificates()?.first()?)
    }

    /// Appends the closing alert of the session to `cipher`.
    pub fn close(&mut self, cipher: &mut Vec<u8>) -> Result<(), TlsError> {
        self.connection.send_close_notify();
        self.write_pending(cipher)
    }

    fn take_plain(&mut self, count: usize, plain: &mut Vec<u8>) -> Result<(), TlsError> {
        let start = plain.len();
        plain.resize(start + count, 0);
        Ok(self.connection.reader().read_exact(&mut plain[start..])?)
    }
}

/// The server name for SNI and verification.
///
/// Without verification, a name that no certificate can contain is accepted and not sent.
fn server_name(host: &Host, sslmode: SslMode) -> Result<ServerName<'static>, TlsError> {
    match ServerName::try_from(host.name.clone()) {
        Ok(name) => Ok(name),
        Err(_) if sslmode < SslMode::VerifyFull => Ok(IpAddr::V4(Ipv4Addr::UNSPECIFIED).into()),
        Err(_) => Err(TlsError::HostName { host: host.name.clone() }),
    }
}

/// The configuration for `sslmode` and `sslrootcert`. Certificates are read at the first call.
pub fn client_config(conninfo: &Conninfo) -> Result<Arc<ClientConfig>, TlsError> {
    if let Some(config) = conninfo.tls.0.get() {
        return Ok(Arc::clone(config));
    }
    let config = build(conninfo)?;
    Ok(Arc::clone(conninfo.tls.0.get_or_init(|| config)))
}

/// Builds the configuration.
///
/// As in libpq, `require` and weaker modes verify the chain if the default root certificate file exists, and do
/// not fail if it is missing.
fn build(conninfo: &Conninfo) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Verifier {
        algorithms: provider.signature_verification_algorithms,
        roots: roots(conninfo)?,
        check_name: conninfo.sslmode == SslMode::VerifyFull,
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Tls)?;
    let mut config =
        builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth();
    // PostgreSQL does not resume sessions, and a resumed session has no certificate for channel binding.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// The trusted certificates, `None` if the mode does not verify.
fn roots(conninfo: &Conninfo) -> Result<Option<Roots>, TlsError> {
    let must_verify = conninfo.sslmode >= SslMode::VerifyCa;
    let sslmode = conninfo.sslmode;
    let missing = |path: &str, why: &str| TlsError::RootCertificates {
        sslmode,
        path: path.to_owned(),
        why: why.to_owned(),
    };
    let certificates = match &conninfo.root_certificates {
        RootCertificates::System => rustls_native_certs::load_native_certs().certs,
        RootCertificates::File(None) if must_verify => {
            return Err(missing("~/.postgresql/root.crt", "there is no home directory"));
        }
        RootCertificates::File(None) => return Ok(None),
        RootCertificates::File(Some(path)) => match read(path) {
            Ok(certificates) => certificates,
            Err(e) if e.kind() == io::ErrorKind::NotFound && !must_verify => return Ok(None),
            Err(e) => return Err(missing(&path.display().to_string(), &e.to_string())),
        },
    };
    let mut store = RootCertStore::empty();
    let (_added, _ignored) = store.add_parsable_certificates(certificates.iter().cloned());
    if certificates.is_empty() {
        return Err(missing("the system's store", "there are none"));
    }
    Ok(Some(Roots { store, certificates }))
}

/// The certificates of a PEM file, at least one.
fn read(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let text = fs::read(path)?;
    let certificates = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "it holds no certificate in PEM form")),
    }
}

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
