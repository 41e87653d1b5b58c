//! TLS without I/O: the response to SSLRequest, the client configuration, and a session that converts between
//! plaintext and ciphertext.

mod certificate;
mod config;
mod error;
mod shared;

pub use config::client_config;
pub use error::TlsError;
pub use shared::SharedConfig;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection};
use rustls_pki_types::ServerName;

use super::conninfo::{Address, Host, SslMode};

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

/// Failure of the first attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstFailure {
    /// The server rejected the session.
    Refused,
    /// The TLS handshake failed: [`TlsError::is_failed_handshake`].
    Handshake,
    /// Another failure, which a second attempt cannot solve.
    Other,
}

/// The encryption of the second attempt.
///
/// `allow` and `prefer` try the other way if the server rejected the session or TLS failed, because
/// `pg_hba.conf` may require it.
#[must_use]
pub fn second_attempt(
    sslmode: SslMode,
    address: &Address,
    used: Encryption,
    failure: FirstFailure,
) -> Option<Encryption> {
    match (address, sslmode, used, failure) {
        (Address::Unix(_), ..) => None,
        (_, SslMode::Allow, Encryption::Plain, FirstFailure::Refused) => Some(Encryption::Tls),
        (_, SslMode::Prefer, Encryption::Tls, FirstFailure::Refused | FirstFailure::Handshake) => {
            Some(Encryption::Plain)
        }
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
