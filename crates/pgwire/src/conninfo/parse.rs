//! Connection strings of both forms, with the environment.

use super::error::ConninfoError;
use super::session::SessionDefaults;
use super::target::Conninfo;
use super::{key_value, settings, uri};

impl Conninfo {
    /// Reads a connection string for the driver, as [`Self::parse_for`] does.
    pub fn parse(
        text: &str,
        variable: &dyn Fn(&str) -> Option<String>,
        os_user: Option<&str>,
    ) -> Result<Self, ConninfoError> {
        Self::parse_for(SessionDefaults::Driver, &[], text, variable, os_user)
    }

    /// Reads a connection string of either form (empty is fine: all defaults), with `options` for what it leaves open,
    /// `variable` to look up environment variables, and the operating system's name of the user. Reads no file:
    /// passwords are those of the string and of `PGPASSWORD`.
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
