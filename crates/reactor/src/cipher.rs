//! A connection's encryption: between the bytes of the protocol and those of the socket.

use super::Error;
use super::inbox::Inbox;
use super::socket::Socket;
use pgwire::tls::{TlsError, TlsSession};

/// What is received at once: about one record of TLS.
const RECEIVED_BYTES: usize = 16 << 10;

/// The TLS session of a connection, and its buffers.
pub(super) struct Cipher {
    session: TlsSession,
    /// Encrypted bytes that go out with the next flush: answers of TLS itself.
    pending: Vec<u8>,
    /// Decrypted bytes on their way to the inbox; empty between calls.
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

    /// Replaces the messages in `out` by what must go to the socket.
    pub(super) fn encrypt(&mut self, out: &mut Vec<u8>) -> Result<(), TlsError> {
        self.session.write_pending(&mut self.pending)?;
        self.session.write_plain(out, &mut self.pending)?;
        out.clear();
        std::mem::swap(out, &mut self.pending);
        Ok(())
    }

    /// The same for the last message of a session.
    pub(super) fn close(&mut self, out: &mut Vec<u8>) -> Result<(), TlsError> {
        self.encrypt(out)?;
        self.session.close(out)
    }

    /// Takes in what has come from the socket; whether anything had, be it only TLS's own.
    pub(super) fn receive(&mut self, socket: &Socket, inbox: &mut Inbox) -> Result<bool, Error> {
        let mut space = [0; RECEIVED_BYTES];
        let Some(count) = socket.receive(&mut space)? else { return Ok(false) };
        let outcome = self.session.read_cipher(&space[..count], &mut self.plain, &mut self.pending);
        if outcome.is_err() {
            // The alert tells the server why; whether it hears it matters no more.
            let _ = socket.send(&self.pending);
        }
        outcome?;
        inbox.append(socket.reactor().pool(), &self.plain);
        self.plain.clear();
        Ok(true)
    }
}
