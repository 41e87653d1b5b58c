//! Messages of the server, which borrow from the receive buffer.
//!
//! [`parse`] validates the body of a message once, if it is read at all; after that its accessors cannot read
//! past its end. Nothing allocates. Lengths are checked before more bytes are awaited, so that a hostile server
//! cannot exceed the limit of buffered bytes.

mod authentication;
mod body;
mod report;
mod row;

pub use authentication::{Authentication, Mechanisms};
pub use body::{CommandTag, Fields, ProtocolError};
pub use report::{ErrorFields, ServerError};
pub use row::Row;

use body::split_cstring;

/// Maximum length of a message in a session, without its tag. Workloads read rows of kilobytes, and a hostile
/// server must not exhaust memory.
pub const MESSAGE_BYTES_MAX: u32 = 16 << 20;

/// Maximum length of a message before the session is ready. The peer may not be a PostgreSQL server.
pub const STARTUP_MESSAGE_BYTES_MAX: u32 = 64 << 10;

/// Transaction status in ReadyForQuery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionStatus {
    /// Not in a transaction block.
    Idle,
    /// In a transaction block.
    Active,
    /// In a failed transaction block, which only ROLLBACK ends.
    Failed,
}

/// One message of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// An authentication request, or AuthenticationOk.
    Authentication(Authentication<'a>),
    /// Key for a CancelRequest.
    BackendKeyData {
        /// The server process.
        process_id: i32,
        /// The secret.
        secret_key: i32,
    },
    /// A statement completed.
    CommandComplete(CommandTag<'a>),
    /// A row of a result.
    DataRow(Row<'a>),
    /// The query was empty.
    EmptyQueryResponse,
    /// An error.
    ErrorResponse(ErrorFields<'a>),
    /// A warning or another notice.
    NoticeResponse(ErrorFields<'a>),
    /// The value of a setting, sent at startup and after each change.
    ParameterStatus {
        /// The setting.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// The server is ready for the next query.
    ReadyForQuery(TransactionStatus),
    /// The columns of a result.
    RowDescription(Fields<'a>),
    /// A message whose content nobody needs, by its type.
    Other(u8),
}

/// Reads the first message of `buf` in an established session.
///
/// Returns the message and its length in bytes, or `None` if `buf` does not contain all of it yet.
#[inline]
pub fn parse(buf: &[u8]) -> Result<Option<(Message<'_>, usize)>, ProtocolError> {
    parse_limited(buf, MESSAGE_BYTES_MAX)
}

/// Reads a message during startup, with the limit [`STARTUP_MESSAGE_BYTES_MAX`].
pub fn parse_startup(buf: &[u8]) -> Result<Option<(Message<'_>, usize)>, ProtocolError> {
    parse_limited(buf, STARTUP_MESSAGE_BYTES_MAX)
}

#[inline]
fn parse_limited(buf: &[u8], limit_bytes: u32) -> Result<Option<(Message<'_>, usize)>, ProtocolError> {
    let Some(&tag) = buf.first() else { return Ok(None) };
    let Some(name) = name_of(tag) else { return Err(ProtocolError::UnknownMessage { tag }) };
    let Some((head, rest)) = buf.split_first_chunk::<5>() else { return Ok(None) };
    let length_bytes = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
    if length_bytes < 4 || length_bytes > limit_bytes {
        return Err(ProtocolError::MessageLength { tag, length_bytes, limit_bytes });
    }
    let Some(body) = rest.get(..length_bytes as usize - 4) else { return Ok(None) };
    let message = read(tag, body).ok_or(ProtocolError::Malformed { message: name })?;
    Ok(Some((message, length_bytes as usize + 1)))
}

/// Reads the message of the known type `tag`; `None` if its body is malformed.
#[inline]
fn read(tag: u8, body: &[u8]) -> Option<Message<'_>> {
    let empty = |message| body.is_empty().then_some(message);
    match tag {
        b'C' => CommandTag::read(body).map(Message::CommandComplete),
        b'D' => Row::read(body).map(Message::DataRow),
        b'Z' => read_status(body).map(Message::ReadyForQuery),
        b'E' => ErrorFields::read(body).map(Message::ErrorResponse),
        b'I' => empty(Message::EmptyQueryResponse),
        b'K' => read_key_data(body),
        b'N' => ErrorFields::read(body).map(Message::NoticeResponse),
        b'R' => Authentication::read(body).map(Message::Authentication),
        b'S' => read_parameter_status(body),
        b'T' => Fields::read(body).map(Message::RowDescription),
        b'1'..=b'3' | b'c' | b'n' | b's' => empty(Message::Other(tag)),
        _ => Some(Message::Other(tag)),
    }
}

impl Message<'_> {
    /// The message's name in the protocol's documentation.
    #[must_use]
    pub fn name(&self) -> &'static str {
        name_of(self.tag()).unwrap_or_default()
    }

    fn tag(&self) -> u8 {
        match self {
            Self::Authentication(_) => b'R',
            Self::BackendKeyData { .. } => b'K',
            Self::CommandComplete(_) => b'C',
            Self::DataRow(_) => b'D',
            Self::EmptyQueryResponse => b'I',
            Self::ErrorResponse(_) => b'E',
            Self::NoticeResponse(_) => b'N',
            Self::ParameterStatus { .. } => b'S',
            Self::ReadyForQuery(_) => b'Z',
            Self::RowDescription(_) => b'T',
            Self::Other(tag) => *tag,
        }
    }
}

/// The name of a message of the server; `None` for an unknown type.
fn name_of(tag: u8) -> Option<&'static str> {
    Some(match tag {
        b'1' => "ParseComplete",
        b'2' => "BindComplete",
        b'3' => "CloseComplete",
        b'A' => "NotificationResponse",
        b'C' => "CommandComplete",
        b'D' => "DataRow",
        b'E' => "ErrorResponse",
        b'G' => "CopyInResponse",
        b'H' => "CopyOutResponse",
        b'I' => "EmptyQueryResponse",
        b'K' => "BackendKeyData",
        b'N' => "NoticeResponse",
        b'R' => "Authentication",
        b'S' => "ParameterStatus",
        b'T' => "RowDescription",
        b'Z' => "ReadyForQuery",
        b'c' => "CopyDone",
        b'd' => "CopyData",
        b'n' => "NoData",
        b's' => "PortalSuspended",
        b't' => "ParameterDescription",
        b'v' => "NegotiateProtocolVersion",
        _ => return None,
    })
}

/// Reads a complete ReadyForQuery.
#[inline]
pub fn ready_for_query(message: &[u8]) -> Result<TransactionStatus, ProtocolError> {
    let status = message.get(5..).and_then(read_status);
    status.ok_or(ProtocolError::Malformed { message: "ReadyForQuery" })
}

#[inline]
fn read_status(body: &[u8]) -> Option<TransactionStatus> {
    match body {
        b"I" => Some(TransactionStatus::Idle),
        b"T" => Some(TransactionStatus::Active),
        b"E" => Some(TransactionStatus::Failed),
        _ => None,
    }
}

/// Reads BackendKeyData. The key has four bytes in protocol 3.0.
fn read_key_data(body: &[u8]) -> Option<Message<'_>> {
    let (process_id, secret_key) = body.split_first_chunk::<4>()?;
    Some(Message::BackendKeyData {
        process_id: i32::from_be_bytes(*process_id),
        secret_key: i32::from_be_bytes(secret_key.try_into().ok()?),
    })
}

fn read_parameter_status(body: &[u8]) -> Option<Message<'_>> {
    let (name, rest) = split_cstring(body)?;
    let (value, rest) = split_cstring(rest)?;
    rest.is_empty().then_some(Message::ParameterStatus { name, value })
}
