//! SQLSTATE codes: five characters, the first two of which are the class.

use std::fmt;

/// A SQLSTATE, stored inline so that counting failures does not allocate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SqlState([u8; 5]);

impl SqlState {
    /// A concurrent transaction conflicts. A retry may succeed.
    pub const SERIALIZATION_FAILURE: Self = Self(*b"40001");
    /// This transaction was chosen to resolve a deadlock. A retry may succeed.
    pub const DEADLOCK_DETECTED: Self = Self(*b"40P01");
    /// The password is wrong or missing.
    pub const INVALID_PASSWORD: Self = Self(*b"28P01");
    /// The database does not exist.
    pub const INVALID_CATALOG_NAME: Self = Self(*b"3D000");
    /// The server is starting up, shutting down or recovering.
    pub const CANNOT_CONNECT_NOW: Self = Self(*b"57P03");
    /// A row with this key exists.
    pub const UNIQUE_VIOLATION: Self = Self(*b"23505");
    /// The table does not exist.
    pub const UNDEFINED_TABLE: Self = Self(*b"42P01");
    /// The disk of the server is full.
    pub const DISK_FULL: Self = Self(*b"53100");
    /// All connections of the server are in use.
    pub const TOO_MANY_CONNECTIONS: Self = Self(*b"53300");
    /// The statement was canceled.
    pub const QUERY_CANCELED: Self = Self(*b"57014");
    /// The server sent no valid code, in violation of the protocol.
    pub const UNKNOWN: Self = Self(*b"XX000");

    /// The code, `None` unless `bytes` are five digits or upper-case letters.
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

    /// Whether an immediate retry of the same transaction may succeed.
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
