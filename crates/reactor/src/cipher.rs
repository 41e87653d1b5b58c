//! Encryption of a connection, between protocol and socket.

use super::Error;
use super::inbox::Inbox;
use super::socket::Socket;
use pgwire::tls::{TlsError, TlsSession};

/// Size of one read: about one TLS record.
const RECEIVED_BYTES: usize = 16 << 10;

/// TLS session of a connection, and its buffers.
pub(super) struct Cipher {
    session: TlsSession,
    /// Encrypted bytes for the next flush: messages of TLS itself.
    pending: Vec<u8>,
    /// Decrypted bytes for the inbox; empty between calls.
    plain: Vec<u8>,
}

impl Cipher {
    pub(super) fn new(session: TlsSession) -> Self {
        Self { session, pending: Vec::new(), plain: Vec::new() }
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    pub(super) fn end_point_hash(&self) -> Option<Vec<u8>> {
        self.session.end_point_hash()
    }

    /// Replaces the messages in `out` with their ciphertext.
    pub(super) fn encrypt(&mut self, out: &mut Vec<u8>) -> Result<(), TlsError> {
        self.session.write_pending(&mut self.pending)?;
        self.session.write_plain(out, &mut self.pending)?;
        out.clear();
        std::mem::swap(out, &mut self.pending);
        Ok(())
    }

    /// Encrypts the last message of a session and closes TLS.
    pub(super) fn close(&mut self, out: &mut Vec<u8>) -> Result<(), TlsError> {
        self.encrypt(out)?;
        self.session.close(out)
    }

    /// Receives available data. Returns whether there was any, including messages of TLS itself.
    pub(super) fn receive(&mut self, socket: &Socket, inbox: &mut Inbox) -> Result<bool, Error> {
        let mut space = [0; RECEIVED_BYTES];
        let Some(count) = socket.receive(&mut space)? else { return Ok(false) };
        let outcome = self.session.read_cipher(&space[..count], &mut self.plain, &mut self.pending);
        if outcome.is_err() {
            // Send the alert to the server. An error no longer matters.
            let _ = socket.send(&mut self.pending, 0);
        }
        outcome?;
        inbox.append(socket.reactor().pool(), &self.plain);
        self.plain.clear();
        Ok(true)
    }
}
