//! Authentication requests of the server.

use super::report::one_line;

/// An authentication request, or its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authentication<'a> {
    /// Authentication succeeded.
    Ok,
    /// A cleartext password.
    CleartextPassword,
    /// A password hashed with the user name and this salt.
    Md5Password {
        /// Four random bytes from the server.
        salt: [u8; 4],
    },
    /// A SASL exchange with one of these mechanisms.
    Sasl(Mechanisms<'a>),
    /// A SASL challenge.
    SaslContinue(&'a [u8]),
    /// The final SASL message, with the server signature.
    SaslFinal(&'a [u8]),
    /// An unsupported method, by its number in the protocol.
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

    /// The names, separated by commas.
    #[must_use]
    pub fn list(&self) -> String {
        let names: Vec<_> = self.names.split(|&b| b == 0).filter(|name| !name.is_empty()).collect();
        one_line(&String::from_utf8_lossy(&names.join(&b", "[..])))
    }
}
