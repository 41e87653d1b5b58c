//! Startup parameters of sessions other than user and database. The driver's are fixed, those of libpq programs
//! are not.

use super::error::ConninfoError;
use super::given::Settings;

/// Environment variables that libpq passes to the server, in its order. `default` is the server's own value.
const VARIABLES: [(&str, &str); 3] = [("PGDATESTYLE", "datestyle"), ("PGTZ", "timezone"), ("PGGEQO", "geqo")];

/// Session defaults by kind of program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionDefaults {
    /// The driver's: UTF8, and no environment variable except `PGOPTIONS` changes the server's behavior.
    Driver,
    /// libpq's, for a program of this name: from the connection string and the environment, else the server's.
    Libpq(&'static str),
}

/// Parameters of the startup message.
pub(super) fn parameters(
    defaults: SessionDefaults,
    settings: &Settings,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<(&'static str, String)>, ConninfoError> {
    let encoding = settings.text("client_encoding");
    if defaults == SessionDefaults::Driver {
        if encoding.is_some_and(|name| !is_utf8(&name)) {
            return Err(settings.invalid("client_encoding", "UTF8, which is always used"));
        }
        return Ok(vec![("client_encoding", "UTF8".to_owned())]);
    }
    if encoding.as_deref() == Some("auto") {
        return Err(settings.invalid("client_encoding", "the name of an encoding (auto is not supported)"));
    }
    let encoding = encoding.map(|name| ("client_encoding", name));
    let named = VARIABLES.iter().filter_map(|&(name, parameter)| {
        let value = variable(name).filter(|value| !value.eq_ignore_ascii_case("default"))?;
        Some((parameter, value))
    });
    Ok(encoding.into_iter().chain(named).collect())
}

/// The application name, which is also in the startup message.
pub(super) fn application_name(defaults: SessionDefaults, settings: &Settings) -> Option<String> {
    settings.text("application_name").or_else(|| match defaults {
        SessionDefaults::Driver => settings.text("fallback_application_name"),
        // The program sets it after the string, which therefore has no effect.
        SessionDefaults::Libpq(program) => Some(program.to_owned()),
    })
}

fn is_utf8(name: &str) -> bool {
    let plain: String = name.chars().filter(|c| *c != '-' && *c != '_').collect();
    ["utf8", "unicode"].iter().any(|name| plain.eq_ignore_ascii_case(name))
}
