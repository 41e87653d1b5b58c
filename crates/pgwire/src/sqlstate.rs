//! SQLSTATE codes: five characters, the first two of which are the class of the error.

use std::fmt;

/// A SQLSTATE, kept inline so that counting failures by it allocates nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SqlState([u8; 5]);

impl SqlState {
    /// Another transaction got in the way; the same transaction may succeed when tried again.
    pub const SERIALIZATION_FAILURE: Self = Self(*b"40001");
    /// This transaction was chosen to end a deadlock; it may succeed when tried again.
    pub const DEADLOCK_DETECTED: Self = Self(*b"40P01");
    /// The password is wrong, or there is none for this user.
    pub const INVALID_PASSWORD: Self = Self(*b"28P01");
    /// No such user, or `pg_hba.conf` has no line that lets it in.
    pub const INVALID_AUTHORIZATION: Self = Self(*b"28000");
    /// The database does not exist.
    pub const INVALID_CATALOG_NAME: Self = Self(*b"3D000");
    /// `max_connections` is reached.
    pub const TOO_MANY_CONNECTIONS: Self = Self(*b"53300");
    /// The server is starting up, shutting down or recovering.
    pub const CANNOT_CONNECT_NOW: Self = Self(*b"57P03");
    /// The server broke the protocol and gave no code, or one that is not a code.
    pub const UNKNOWN: Self = Self(*b"XX000");

    /// The code, or `None` unless `bytes` are five digits and upper-case letters.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let code: [u8; 5] = bytes.try_into().ok()?;
        code.iter().all(|c| c.is_ascii_digit() || c.is_ascii_uppercase()).then_some(Self(code))
    }

    /// The five characters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("XX000")
    }

    /// The first two characters: the class of the error.
    #[must_use]
    pub fn class(&self) -> &str {
        &self.as_str()[..2]
    }

    /// Whether the same transaction may succeed when it is tried again at once.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        self == Self::SERIALIZATION_FAILURE || self == Self::DEADLOCK_DETECTED
    }
}

impl fmt::Display for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
