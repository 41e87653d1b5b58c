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
pub use row::{Columns, Row};

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
    /// Bind completed.
    BindComplete,
    /// Close completed.
    CloseComplete,
    /// A statement completed.
    CommandComplete(CommandTag<'a>),
    /// Data of COPY TO.
    CopyData(&'a [u8]),
    /// The end of COPY TO.
    CopyDone,
    /// The server is ready for COPY FROM.
    CopyInResponse,
    /// COPY TO begins.
    CopyOutResponse,
    /// A row of a result.
    DataRow(Row<'a>),
    /// The query was empty.
    EmptyQueryResponse,
    /// An error.
    ErrorResponse(ErrorFields<'a>),
    /// The server does not support a newer protocol or an option. The client requests neither.
    NegotiateProtocolVersion,
    /// The statement returns no rows.
    NoData,
    /// A warning or another notice.
    NoticeResponse(ErrorFields<'a>),
    /// A notification of LISTEN.
    NotificationResponse,
    /// The types of a prepared statement's parameters.
    ParameterDescription,
    /// The value of a setting, sent at startup and after each change.
    ParameterStatus {
        /// The setting.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// Parse completed.
    ParseComplete,
    /// The row limit of Execute is reached.
    PortalSuspended,
    /// The server is ready for the next query.
    ReadyForQuery(TransactionStatus),
    /// The columns of a result.
    RowDescription(Fields<'a>),
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
    if !is_known(tag) {
        return Err(ProtocolError::UnknownMessage { tag });
    }
    let Some((head, rest)) = buf.split_first_chunk::<5>() else { return Ok(None) };
    let length_bytes = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
    if length_bytes < 4 || length_bytes > limit_bytes {
        return Err(ProtocolError::MessageLength { tag, length_bytes, limit_bytes });
    }
    let Some(body) = rest.get(..length_bytes as usize - 4) else { return Ok(None) };
    let message = read(tag, body).ok_or(ProtocolError::Malformed { message: name_of(tag) })?;
    Ok(Some((message, length_bytes as usize + 1)))
}

/// Reads the message of type `tag`; `None` if its body is malformed.
#[inline]
fn read(tag: u8, body: &[u8]) -> Option<Message<'_>> {
    let empty = |message| body.is_empty().then_some(message);
    match tag {
        b'2' => empty(Message::BindComplete),
        b'C' => CommandTag::read(body).map(Message::CommandComplete),
        b'D' => Row::read(body).map(Message::DataRow),
        b'Z' => read_status(body).map(Message::ReadyForQuery),
        b'1' => empty(Message::ParseComplete),
        b'3' => empty(Message::CloseComplete),
        b'A' => Some(Message::NotificationResponse),
        b'E' => ErrorFields::read(body).map(Message::ErrorResponse),
        b'G' => Some(Message::CopyInResponse),
        b'H' => Some(Message::CopyOutResponse),
        b'I' => empty(Message::EmptyQueryResponse),
        b'K' => read_key_data(body),
        b'N' => ErrorFields::read(body).map(Message::NoticeResponse),
        b'R' => Authentication::read(body).map(Message::Authentication),
        b'S' => read_parameter_status(body),
        b'T' => Fields::read(body).map(Message::RowDescription),
        b'c' => empty(Message::CopyDone),
        b'd' => Some(Message::CopyData(body)),
        b'n' => empty(Message::NoData),
        b's' => empty(Message::PortalSuspended),
        b't' => Some(Message::ParameterDescription),
        b'v' => Some(Message::NegotiateProtocolVersion),
        _ => None,
    }
}

impl Message<'_> {
    /// The message's name in the protocol's documentation.
    #[must_use]
    pub fn name(&self) -> &'static str {
        name_of(self.tag())
    }

    fn tag(&self) -> u8 {
        match self {
            Self::Authentication(_) => b'R',
            Self::BackendKeyData { .. } => b'K',
            Self::BindComplete => b'2',
            Self::CloseComplete => b'3',
            Self::CommandComplete(_) => b'C',
            Self::CopyData(_) => b'd',
            Self::CopyDone => b'c',
            Self::CopyInResponse => b'G',
            Self::CopyOutResponse => b'H',
            Self::DataRow(_) => b'D',
            Self::EmptyQueryResponse => b'I',
            Self::ErrorResponse(_) => b'E',
            Self::NegotiateProtocolVersion => b'v',
            Self::NoData => b'n',
            Self::NoticeResponse(_) => b'N',
            Self::NotificationResponse => b'A',
            Self::ParameterDescription => b't',
            Self::ParameterStatus { .. } => b'S',
            Self::ParseComplete => b'1',
            Self::PortalSuspended => b's',
            Self::ReadyForQuery(_) => b'Z',
            Self::RowDescription(_) => b'T',
        }
    }
}

#[inline]
fn is_known(tag: u8) -> bool {
    matches!(tag, b'1'..=b'3' | b'A' | b'C'..=b'E' | b'G'..=b'I' | b'K' | b'N' | b'R'..=b'T' | b'Z')
        || matches!(tag, b'c' | b'd' | b'n' | b's' | b't' | b'v')
}

fn name_of(tag: u8) -> &'static str {
    match tag {
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
        _ => "message",
    }
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
