//! The bodies of the messages that have a structure, rows apart.

use std::borrow::Cow;
use std::fmt;

use super::super::SqlState;
use super::split_cstring;

/// What the server demands before it lets us in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authentication<'a> {
    /// Nothing more: we are in.
    Ok,
    /// The password as it is.
    CleartextPassword,
    /// The password hashed with the user's name and this salt.
    Md5Password {
        /// Four random bytes of the server's.
        salt: [u8; 4],
    },
    /// A SASL exchange by one of these mechanisms.
    Sasl(Mechanisms<'a>),
    /// The server's next move in a SASL exchange.
    SaslContinue(&'a [u8]),
    /// The server's last move: its own proof.
    SaslFinal(&'a [u8]),
    /// A method that we do not have, by its number in the protocol.
    Other(i32),
}

impl<'a> Authentication<'a> {
    pub(super) fn read(body: &'a [u8]) -> Option<Self> {
        let (kind, rest) = body.split_first_chunk::<4>()?;
        match i32::from_be_bytes(*kind) {
            0 => rest.is_empty().then_some(Self::Ok),
            3 => rest.is_empty().then_some(Self::CleartextPassword),
            5 => Some(Self::Md5Password { salt: rest.try_into().ok()? }),
            10 => Mechanisms::read(rest).map(Self::Sasl),
            11 => Some(Self::SaslContinue(rest)),
            12 => Some(Self::SaslFinal(rest)),
            other => Some(Self::Other(other)),
        }
    }

    /// The method's name, for messages to people.
    #[must_use]
    pub fn name(&self) -> Cow<'static, str> {
        let name = match self {
            Self::Ok => "none (trust)",
            Self::CleartextPassword => "password",
            Self::Md5Password { .. } => "md5",
            Self::Sasl(_) | Self::SaslContinue(_) | Self::SaslFinal(_) => "SASL",
            Self::Other(2) => "Kerberos 5",
            Self::Other(7 | 8) => "GSSAPI",
            Self::Other(9) => "SSPI",
            Self::Other(n) => return Cow::Owned(format!("number {n}")),
        };
        Cow::Borrowed(name)
    }
}

/// The names of SASL mechanisms, in the server's order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mechanisms<'a> {
    names: &'a [u8],
}

impl<'a> Mechanisms<'a> {
    fn read(body: &'a [u8]) -> Option<Self> {
        let names = body.strip_suffix(&[0])?;
        (names.is_empty() || names.ends_with(&[0])).then_some(Self { names })
    }

    /// Whether the server offers a mechanism.
    #[must_use]
    pub fn has(&self, mechanism: &str) -> bool {
        self.names.split(|&b| b == 0).any(|name| name == mechanism.as_bytes())
    }

    /// The names, with commas between them.
    #[must_use]
    pub fn list(&self) -> String {
        let names: Vec<_> = self.names.split(|&b| b == 0).filter(|name| !name.is_empty()).collect();
        one_line(&String::from_utf8_lossy(&names.join(&b", "[..])))
    }
}

/// What a statement did, such as `UPDATE 3`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CommandTag<'a> {
    text: &'a [u8],
}

impl<'a> CommandTag<'a> {
    #[inline]
    pub(super) fn read(body: &'a [u8]) -> Option<Self> {
        body.strip_suffix(&[0]).map(|text| Self { text })
    }

    /// The tag as the server wrote it.
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.text
    }

    /// Number of rows: selected, inserted, updated, deleted, copied; 0 for a statement that counts none.
    #[must_use]
    pub fn rows(&self) -> u64 {
        let digits = self.text.iter().rev().take_while(|b| b.is_ascii_digit()).count();
        let number = &self.text[self.text.len() - digits..];
        number.iter().fold(0u64, |n, b| n.saturating_mul(10).saturating_add(u64::from(b - b'0')))
    }
}

impl fmt::Debug for CommandTag<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.text.escape_ascii())
    }
}

/// The formats that COPY wants or sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyResponse {
    /// Whether the whole COPY is binary.
    pub binary: bool,
    /// Number of columns.
    pub columns: u16,
}

impl CopyResponse {
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        let (&[binary, a, b], formats) = body.split_first_chunk::<3>()?;
        let columns = u16::from_be_bytes([a, b]);
        (binary <= 1 && formats.len() == 2 * usize::from(columns))
            .then_some(Self { binary: binary == 1, columns })
    }
}

/// The fields of an error or notice; each is looked up when asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ErrorFields<'a> {
    fields: &'a [u8],
}

impl<'a> ErrorFields<'a> {
    /// Checks that the fields are strings with a code before each and a zero at the end.
    pub(super) fn read(body: &'a [u8]) -> Option<Self> {
        let mut rest = body;
        loop {
            match rest {
                [0] => return Some(Self { fields: body }),
                [_, value @ ..] => (_, rest) = split_cstring(value)?,
                [] => return None,
            }
        }
    }

    /// A field by its code in the protocol, such as `b'M'`.
    #[must_use]
    pub fn get(&self, code: u8) -> Option<&'a [u8]> {
        let mut rest = self.fields;
        while let [found, value @ ..] = rest {
            let (text, next) = split_cstring(value)?;
            if *found == code {
                return (code != 0).then_some(text);
            }
            rest = next;
        }
        None
    }

    /// The code of the error; [`SqlState::UNKNOWN`] if the server gave none.
    #[must_use]
    pub fn sqlstate(&self) -> SqlState {
        self.get(b'C').and_then(SqlState::from_bytes).unwrap_or(SqlState::UNKNOWN)
    }

    /// ERROR, FATAL, WARNING and so on; untranslated where the server is 9.6 or newer.
    #[must_use]
    pub fn severity(&self) -> Cow<'a, str> {
        self.text(b'V').or_else(|| self.text(b'S')).unwrap_or_default()
    }

    /// The error in one line.
    #[must_use]
    pub fn message(&self) -> Cow<'a, str> {
        self.text(b'M').unwrap_or_default()
    }

    /// More about it.
    #[must_use]
    pub fn detail(&self) -> Option<Cow<'a, str>> {
        self.text(b'D')
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<Cow<'a, str>> {
        self.text(b'H')
    }

    /// The call stack of the server's functions.
    #[must_use]
    pub fn context(&self) -> Option<Cow<'a, str>> {
        self.text(b'W')
    }

    /// The fields that outlive the buffer.
    #[must_use]
    pub fn to_owned(&self) -> ServerError {
        ServerError {
            sqlstate: self.sqlstate(),
            severity: self.severity().into_owned(),
            message: self.message().into_owned(),
            detail: self.detail().map(Cow::into_owned),
            hint: self.hint().map(Cow::into_owned),
            position: self.number(b'P'),
            internal_query: self.text(b'q').map(Cow::into_owned),
            internal_position: self.number(b'p'),
            context: self.context().map(Cow::into_owned),
        }
    }

    fn number(&self, code: u8) -> Option<u32> {
        std::str::from_utf8(self.get(code)?).ok()?.parse().ok()
    }

    fn text(&self, code: u8) -> Option<Cow<'a, str>> {
        self.get(code).map(String::from_utf8_lossy)
    }
}

impl fmt::Debug for ErrorFields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.severity(), self.sqlstate(), self.message())
    }
}

/// An error of the server's, to keep.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.line())]
pub struct ServerError {
    /// The code.
    pub sqlstate: SqlState,
    /// ERROR, FATAL or PANIC.
    pub severity: String,
    /// The error in one line.
    pub message: String,
    /// More about it.
    pub detail: Option<String>,
    /// What to do about it.
    pub hint: Option<String>,
    /// The character of the statement that it is about, from 1.
    pub position: Option<u32>,
    /// The statement that the server made itself and failed in.
    pub internal_query: Option<String>,
    /// The character of that statement, from 1.
    pub internal_position: Option<u32>,
    /// The call stack of the server's functions.
    pub context: Option<String>,
}

impl ServerError {
    /// Message, detail, hint and code in one line.
    fn line(&self) -> String {
        let parts = [Some(&self.message), self.detail.as_ref(), self.hint.as_ref()];
        let text: Vec<_> = parts.into_iter().flatten().map(|part| one_line(part)).collect();
        format!("{} (SQLSTATE {})", text.join("; "), self.sqlstate)
    }
}

/// A server's text, made harmless to a terminal: no line breaks, no escape sequences.
fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Object identifiers of types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oids<'a> {
    oids: &'a [u8],
}

impl<'a> Oids<'a> {
    pub(super) fn read(body: &'a [u8]) -> Option<Self> {
        let (count, oids) = body.split_first_chunk::<2>()?;
        (oids.len() == 4 * usize::from(u16::from_be_bytes(*count))).then_some(Self { oids })
    }

    /// The identifiers in order.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + 'a {
        self.oids.chunks_exact(4).map(|oid| u32::from_be_bytes([oid[0], oid[1], oid[2], oid[3]]))
    }
}

/// One column of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// The OID of its type.
    pub type_oid: u32,
    /// The type's modifier, −1 for none.
    pub type_modifier: i32,
    /// Whether its values are binary; a description before Bind always says no.
    pub binary: bool,
}

/// The columns of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fields<'a> {
    fields: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn read(body: &'a [u8]) -> Option<Self> {
        let (count, fields) = body.split_first_chunk::<2>()?;
        let mut rest = fields;
        for _ in 0..u16::from_be_bytes(*count) {
            (_, rest) = split_field(rest)?;
        }
        rest.is_empty().then_some(Self { fields })
    }

    /// The columns in order.
    pub fn iter(&self) -> impl Iterator<Item = Field<'a>> + Clone + 'a {
        let mut rest = self.fields;
        std::iter::from_fn(move || {
            let (field, next) = split_field(rest)?;
            rest = next;
            Some(field)
        })
    }
}

/// A field's fixed part: table OID (4), column (2), type OID (4), size (2), modifier (4), format (2).
fn split_field(bytes: &[u8]) -> Option<(Field<'_>, &[u8])> {
    let (name, rest) = split_cstring(bytes)?;
    let (&[_, _, _, _, _, _, t0, t1, t2, t3, _, _, m0, m1, m2, m3, f0, f1], rest) =
        rest.split_first_chunk::<18>()?;
    let field = Field {
        name,
        type_oid: u32::from_be_bytes([t0, t1, t2, t3]),
        type_modifier: i32::from_be_bytes([m0, m1, m2, m3]),
        binary: [f0, f1] == [0, 1],
    };
    Some((field, rest))
}
