//! Properties of a session that the server reports during startup.

use super::error::StartupError;

/// The oldest supported major version.
const VERSION_MIN: u32 = 10;

/// Key and initial settings of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Session {
    /// Process ID and secret key for a CancelRequest. A pooler may not send them.
    pub key: Option<(i32, i32)>,
    parameters: Vec<(String, String)>,
}

impl Session {
    /// A setting that the server reported, such as `server_version`.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The version as the server reports it, such as `17.2 (Debian 17.2-1)`; empty if not reported.
    #[must_use]
    pub fn server_version(&self) -> &str {
        self.parameter("server_version").unwrap_or_default()
    }

    /// The version as in `server_version_num`: 170002 for 17.2, 180000 for 18beta1.
    #[must_use]
    pub fn server_version_num(&self) -> Option<u32> {
        if let Some(told) = self.parameter("server_version_num") {
            return told.parse().ok();
        }
        let (major, rest) = split_number(self.server_version())?;
        let mut minors = rest.strip_prefix('.').into_iter().flat_map(|rest| rest.split('.'));
        let mut minor = || minors.next().and_then(split_number).map_or(0, |(minor, _)| minor);
        // Before 10 the major version had two parts.
        let (first, second) = (minor(), minor());
        let below = if major >= VERSION_MIN { first } else { first.checked_mul(100)?.checked_add(second)? };
        major.checked_mul(10_000)?.checked_add(below)
    }

    pub(super) fn set_parameter(&mut self, name: &[u8], value: &[u8]) {
        let name = String::from_utf8_lossy(name);
        let value = String::from_utf8_lossy(value).into_owned();
        match self.parameters.iter_mut().find(|(n, _)| *n == name) {
            Some((_, old)) => *old = value,
            None => self.parameters.push((name.into_owned(), value)),
        }
    }

    /// Fails for a server older than `VERSION_MIN`. One that reports no version may be a pooler and is
    /// accepted.
    pub(super) fn check_version(&self) -> Result<(), StartupError> {
        match self.server_version_num() {
            Some(version) if version < VERSION_MIN * 10_000 => Err(StartupError::ServerTooOld {
                version: self.server_version().to_owned(),
                oldest: VERSION_MIN,
            }),
            _ => Ok(()),
        }
    }

    /// Whether sessions are read-only; `None` before version 14, which does not report it.
    pub(super) fn is_read_only(&self) -> Option<bool> {
        let read_only = self.parameter("default_transaction_read_only")?;
        Some(self.is_standby()? || read_only == "on")
    }

    /// Whether the server is in recovery; `None` before version 14, which does not report it.
    pub(super) fn is_standby(&self) -> Option<bool> {
        self.parameter("in_hot_standby").map(|standby| standby == "on")
    }
}

/// Splits a text into its leading number and the rest.
fn split_number(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}
