//! Connection strings of both forms, with the environment.

use super::error::ConninfoError;
use super::session::SessionDefaults;
use super::target::Conninfo;
use super::{key_value, settings, uri};

impl Conninfo {
    /// Parses a connection string for the driver, see [`Self::parse_for`].
    pub fn parse(
        text: &str,
        variable: &dyn Fn(&str) -> Option<String>,
        os_user: Option<&str>,
    ) -> Result<Self, ConninfoError> {
        Self::parse_for(SessionDefaults::Driver, &[], text, variable, os_user)
    }

    /// Parses a connection string of either form; an empty one means all defaults.
    ///
    /// `options` apply to keywords that the string does not set. `variable` looks up environment variables.
    /// `user` is the name of the operating system's user. Reads no file: passwords come from the string and
    /// `PGPASSWORD`.
    pub fn parse_for(
        defaults: SessionDefaults,
        options: &[(&str, &str)],
        text: &str,
        variable: &dyn Fn(&str) -> Option<String>,
        os_user: Option<&str>,
    ) -> Result<Self, ConninfoError> {
        let mut given: Vec<_> =
            options.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        given.extend(match uri::rest_of(text) {
            Some(rest) => uri::parse(rest)?,
            None => key_value::parse(text)?,
        });
        settings::resolve(defaults, &given, variable, os_user)
    }
}
