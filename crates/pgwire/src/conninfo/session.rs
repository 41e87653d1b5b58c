//! What sessions begin with besides a user and a database: the driver's are pinned, those of libpq's programs are not.

use super::error::ConninfoError;
use super::given::Settings;

/// Variables that libpq hands on to the server, in its order: `default` is the server's own value.
const VARIABLES: [(&str, &str); 3] = [("PGDATESTYLE", "datestyle"), ("PGTZ", "timezone"), ("PGGEQO", "geqo")];

/// Whose ways sessions have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionDefaults {
    /// The driver's: they speak UTF8, and no variable but `PGOPTIONS` says how the server is to work in them.
    Driver,
    /// libpq's, for a program of this name: as the string and the environment say, or else as the server has it.
    Libpq(&'static str),
}

/// The parameters of the server that a session begins with.
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

/// The name of the application, which a session begins with as well.
pub(super) fn application_name(defaults: SessionDefaults, settings: &Settings) -> Option<String> {
    settings.text("application_name").or_else(|| match defaults {
        SessionDefaults::Driver => settings.text("fallback_application_name"),
        // The program gives it behind the string, so that the string's does not count.
        SessionDefaults::Libpq(program) => Some(program.to_owned()),
    })
}

fn is_utf8(name: &str) -> bool {
    let plain: String = name.chars().filter(|c| *c != '-' && *c != '_').collect();
    ["utf8", "unicode"].iter().any(|name| plain.eq_ignore_ascii_case(name))
}
