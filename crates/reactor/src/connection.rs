//! Connection to a server, used within a future of the loop.

use super::cipher::Cipher;
use super::inbox::{Inbox, Seen};
use super::socket::Socket;
use super::{Error, Reactor};
use pgwire::backend::{self, ErrorFields, MESSAGE_BYTES_MAX, Message, ProtocolError, TransactionStatus};
use pgwire::conninfo::{Conninfo, Host};
use pgwire::frontend;
use pgwire::startup::Channel;
use pgwire::tls::{self, Encryption, TlsSession};

/// Maximum size of responses that are held while sending.
const HELD_BYTES_MAX: usize = MESSAGE_BYTES_MAX as usize;
/// Maximum number of notices and parameter reports in a row, more than any session of this driver can cause.
const ASIDES_MAX: usize = 10_000;
/// Maximum text that [`Connection::simple`] collects.
const TEXT_BYTES_MAX: usize = 64 << 20;

/// Rows of text of a simple query.
pub type TextRows = Vec<Vec<Option<String>>>;

/// Handler of notices and warnings of the server.
pub type OnNotice = fn(&ErrorFields<'_>);

/// A session with a server. Dropping it ends the session.
///
/// If a future of one of its methods is dropped before it completes, the protocol state is undefined: drop the
/// connection, too.
pub struct Connection {
    socket: Socket,
    inbox: Inbox,
    out: Vec<u8>,
    tls: Option<Box<Cipher>>,
    /// Process ID and secret key for a CancelRequest. A pooler may not send them.
    pub(super) key: Option<(i32, i32)>,
    /// Number of pending ReadyForQuery messages: one for each Sync or Query sent.
    owed: u32,
    /// Whether messages were sent that need a Sync before ReadyForQuery.
    unsynced: bool,
    /// Whether the ReadyForQuery of everything sent was received.
    at_rest: bool,
    /// Whether the server started an unexpected COPY: it does not process anything else until that ends.
    in_copy: bool,
    status: TransactionStatus,
    on_notice: Option<OnNotice>,
}

impl Connection {
    /// A session on a socket, already started.
    #[must_use]
    pub fn new(socket: Socket) -> Self {
        let (inbox, out, status) = (Inbox::default(), Vec::new(), TransactionStatus::Idle);
        Self {
            socket,
            inbox,
            out,
            tls: None,
            key: None,
            owed: 0,
            unsynced: false,
            at_rest: true,
            in_copy: false,
            status,
            on_notice: None,
        }
    }

    /// Sets the handler of notices. They are ignored by default.
    pub fn on_notice(&mut self, hear: Option<OnNotice>) {
        self.on_notice = hear;
    }

    /// The loop of this connection.
    #[must_use]
    pub fn reactor(&self) -> &Reactor {
        self.socket.reactor()
    }

    /// Switches to the loop's io_uring, if there is one.
    pub(super) fn join_ring(&mut self) {
        self.socket.join_ring();
    }

    /// The buffer for messages (see [`frontend`]) that the next flush sends.
    #[inline]
    pub fn out(&mut self) -> &mut Vec<u8> {
        if self.out.capacity() == 0 {
            self.out = self.socket.send_buffer();
        }
        &mut self.out
    }

    /// Transaction status of the last ReadyForQuery.
    #[inline]
    #[must_use]
    pub fn transaction_status(&self) -> TransactionStatus {
        self.status
    }

    /// Sends the buffered messages.
    ///
    /// While the kernel accepts no more, it receives data of the server, so that the two do not wait for each
    /// other. A closed connection is reported by [`Connection::next`], after the server's last message.
    #[inline]
    pub async fn flush(&mut self) -> Result<(), Error> {
        self.note_what_is_owed();
        if let Some(tls) = &mut self.tls {
            tls.encrypt(&mut self.out)?;
        }
        let mut sent = 0;
        while sent < self.out.len() {
            match self.socket.send(&mut self.out, sent) {
                Ok(Some(count)) => sent += count,
                Ok(None) => match self.make_room().await {
                    Err(Error::Closed) => break,
                    outcome => outcome?,
                },
                Err(Error::Closed) => break,
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.socket.reactor().pool().give_to_send(&mut self.out);
        Ok(())
    }

    /// Counts the expected ReadyForQuery for the messages in `out`.
    #[inline]
    fn note_what_is_owed(&mut self) {
        let mut rest = &self.out[..];
        while let [tag, l0, l1, l2, l3, ..] = *rest {
            match tag {
                b'S' => (self.owed, self.unsynced) = (self.owed + 1, false),
                b'Q' => {
                    assert!(
                        !self.unsynced,
                        "after an error before it, a query has no answer: send a Sync first"
                    );
                    self.owed += 1;
                }
                b'P' | b'B' | b'D' | b'E' | b'C' => self.unsynced = true,
                _ => {}
            }
            let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize + 1;
            rest = rest.get(length..).unwrap_or_default();
        }
        self.at_rest = false;
    }

    #[cold]
    async fn make_room(&mut self) -> Result<(), Error> {
        self.socket.writable_or_readable().await?;
        while self.receive()? {
            if self.inbox.held_bytes() > HELD_BYTES_MAX {
                return Err(Error::Limit("answers to a request that is still being sent"));
            }
        }
        Ok(())
    }

    /// The server's next message, borrowed from the receive buffer.
    ///
    /// An ErrorResponse is returned as [`Error::Server`]; acknowledgments such as BindComplete, notices,
    /// notifications and parameter reports are skipped. An unexpected COPY is an error, because the server would
    /// process nothing else. For an expected one call [`Connection::copy_in_begun`].
    #[inline]
    pub async fn next(&mut self) -> Result<Message<'_>, Error> {
        self.next_unless(|_| false).await
    }

    /// The server's next message whose type `skips` does not skip. Skipped bodies are not parsed.
    #[inline]
    pub async fn next_unless(&mut self, skips: impl FnMut(u8) -> bool) -> Result<Message<'_>, Error> {
        let (tag, length) = self.arrival(skips).await?;
        self.take(tag, length)
    }

    /// Takes the first message, of this type and length.
    #[inline]
    fn take(&mut self, tag: u8, length: usize) -> Result<Message<'_>, Error> {
        match tag {
            b'Z' => return self.ready_for_query(length).map(Message::ReadyForQuery),
            b'G' | b'H' => return Err(self.refuse_copy(length)),
            _ => {}
        }
        match backend::parse(self.inbox.take(length))? {
            Some((Message::ErrorResponse(fields), _)) => Err(Error::Server(Box::new(fields.to_owned()))),
            Some((message, _)) => Ok(message),
            None => Err(Error::Closed),
        }
    }

    #[cold]
    fn refuse_copy(&mut self, length: usize) -> Error {
        self.in_copy = true;
        let doing = "reading an answer; COPY is not supported";
        match backend::parse(self.inbox.take(length)) {
            Ok(Some((message, _))) => ProtocolError::Unexpected { message: message.name(), doing }.into(),
            Ok(None) => Error::Closed,
            Err(error) => error.into(),
        }
    }

    /// Reads the response to `COPY … FROM STDIN` until the server expects rows.
    pub async fn copy_in_begun(&mut self) -> Result<(), Error> {
        loop {
            let (tag, length) = self.arrival(|_| false).await?;
            if tag == b'G' {
                return backend::parse(self.inbox.take(length)).map(|_| ()).map_err(Error::from);
            }
            if let message @ Message::ReadyForQuery(_) = self.take(tag, length)? {
                let doing = "waiting for COPY to begin";
                return Err(ProtocolError::Unexpected { message: message.name(), doing }.into());
            }
        }
    }

    /// Skips the response up to ReadyForQuery. Adds its counts to `seen`, even after an error.
    #[inline]
    pub async fn read_over(&mut self, seen: &mut Seen) -> Result<(), Error> {
        let mut count = |tag| {
            match tag {
                b'D' => seen.rows += 1,
                b'C' | b'I' => seen.statements += 1,
                b'T' => {}
                _ => return false,
            }
            true
        };
        loop {
            let (tag, length) = self.arrival(&mut count).await?;
            if let Message::ReadyForQuery(_) = self.take(tag, length)? {
                return Ok(());
            }
        }
    }

    /// The server's next message before the session is ready: nothing is skipped, and all messages are short.
    pub(super) async fn next_of_startup(&mut self) -> Result<Message<'_>, Error> {
        let length = loop {
            if let Some((_, length)) = backend::parse_startup(self.inbox.bytes())? {
                break length;
            }
            self.more().await?;
        };
        if self.inbox.bytes()[0] == b'Z' {
            return self.ready_for_query(length).map(Message::ReadyForQuery);
        }
        match backend::parse_startup(self.inbox.take(length))? {
            Some((message, _)) => Ok(message),
            None => Err(Error::Closed),
        }
    }

    /// Requests TLS, and starts it unless the server lacks it and it is optional.
    pub(super) async fn encrypt(&mut self, conninfo: &Conninfo, host: &Host) -> Result<Channel, Error> {
        frontend::ssl_request(self.out());
        self.flush().await?;
        let answer = loop {
            match tls::read_answer(self.inbox.bytes(), conninfo.sslmode)? {
                Some(answer) => break answer,
                None => self.more().await?,
            }
        };
        self.inbox.take(1);
        if answer == Encryption::Plain {
            return Ok(Channel::Plain);
        }
        let session = TlsSession::begin(tls::client_config(conninfo)?, host, conninfo.sslmode)?;
        self.tls = Some(Box::new(Cipher::new(session)));
        loop {
            // The flush sends most messages of the handshake, the startup message its last ones.
            self.flush().await?;
            match &self.tls {
                Some(cipher) if cipher.is_handshaking() => self.more().await?,
                cipher => {
                    let end_point_hash = cipher.as_ref().and_then(|cipher| cipher.end_point_hash());
                    return Ok(Channel::Tls { end_point_hash });
                }
            }
        }
    }

    /// Receives more, waiting if necessary.
    async fn more(&mut self) -> Result<(), Error> {
        while !self.receive()? {
            self.socket.readable().await;
        }
        Ok(())
    }

    #[inline]
    fn ready_for_query(&mut self, length: usize) -> Result<TransactionStatus, Error> {
        self.status = backend::ready_for_query(self.inbox.take(length))?;
        self.owed = self.owed.saturating_sub(1);
        self.at_rest = self.owed == 0 && !self.unsynced;
        Ok(self.status)
    }

    /// Waits for a complete message that is no acknowledgment, notice or report, and whose type `skips` does not
    /// skip. Returns its type and length.
    #[inline]
    async fn arrival(&mut self, mut skips: impl FnMut(u8) -> bool) -> Result<(u8, usize), Error> {
        let mut asides = 0;
        loop {
            match self.inbox.skim(&mut skips)? {
                Some((b'N' | b'S' | b'A', length)) => {
                    self.aside(length)?;
                    asides += 1;
                    if asides > ASIDES_MAX {
                        return Err(Error::Limit("notices in a row"));
                    }
                }
                Some(arrived) => return Ok(arrived),
                None if self.receive()? => {}
                None => {
                    self.inbox.rest(self.socket.reactor().pool());
                    self.socket.readable().await;
                }
            }
        }
    }

    #[cold]
    fn aside(&mut self, length: usize) -> Result<(), Error> {
        let aside = backend::parse(self.inbox.take(length))?;
        if let (Some((Message::NoticeResponse(fields), _)), Some(hear)) = (aside, self.on_notice) {
            hear(&fields);
        }
        Ok(())
    }

    /// Receives available data. Returns whether there was any.
    #[inline]
    fn receive(&mut self) -> Result<bool, Error> {
        if !self.socket.is_readable() {
            return Ok(false);
        }
        if let Some(tls) = &mut self.tls {
            return tls.receive(&self.socket, &mut self.inbox);
        }
        let space = self.inbox.space(self.socket.reactor().pool());
        let received = self.socket.receive(space)?;
        self.inbox.received(received.unwrap_or(0));
        Ok(received.is_some())
    }

    /// Executes SQL by the simple protocol. Returns the rows of all its statements as text.
    ///
    /// Reads the complete response even after an error.
    ///
    /// # Panics
    ///
    /// If answers to other messages are still to come.
    pub async fn simple(&mut self, sql: &str) -> Result<TextRows, Error> {
        if self.in_copy {
            return Err(Error::Closed);
        }
        assert_eq!(self.owed, 0, "an answer to something else is still to come");
        frontend::query(self.out(), sql)?;
        self.flush().await?;
        let (mut rows, mut text_bytes, mut failure) = (TextRows::new(), 0, None);
        loop {
            match self.next().await {
                Ok(Message::ReadyForQuery(_)) => return failure.map_or(Ok(rows), Err),
                Ok(Message::DataRow(row)) => {
                    let texts =
                        row.columns().map(|column| column.map(|c| String::from_utf8_lossy(c).into_owned()));
                    rows.push(texts.collect());
                    text_bytes +=
                        rows.last().into_iter().flatten().flatten().map(String::len).sum::<usize>() + 64;
                    if text_bytes > TEXT_BYTES_MAX {
                        return Err(Error::Limit("the text of a query's result"));
                    }
                }
                Ok(_) => {}
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
    }

    /// Prepares a statement. `types` are parameter type OIDs that the server should not infer.
    pub async fn prepare(&mut self, name: &str, sql: impl AsRef<[u8]>, types: &[u32]) -> Result<(), Error> {
        frontend::parse(self.out(), name, sql, types)?;
        frontend::sync(self.out());
        self.flush().await?;
        self.answer().await
    }

    /// Skips the response to everything that was sent. Returns the first error in it.
    pub async fn answer(&mut self) -> Result<(), Error> {
        let mut failure = None;
        while self.owed > 0 {
            match self.read_over(&mut Seen::default()).await {
                Ok(()) => {}
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Restores a session after an error: skips the rest of the response, and rolls back an open transaction.
    pub async fn recover(&mut self) -> Result<(), Error> {
        self.out.clear();
        if self.unsynced {
            frontend::sync(self.out());
            self.flush().await?;
        }
        match self.answer().await {
            Err(error) if error.is_fatal() => return Err(error),
            _ => {}
        }
        if self.status != TransactionStatus::Idle {
            self.simple("ROLLBACK").await?;
        }
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Without Terminate the server would log an unexpected EOF. Its delivery is not awaited.
        if self.at_rest {
            self.out.clear();
            frontend::terminate(self.out());
            if let Some(tls) = &mut self.tls {
                let _ = tls.close(&mut self.out);
            }
            let _ = self.socket.send(&mut self.out, 0);
        }
    }
}
