//! Connection parameters: libpq's connection strings, environment variables and password file.
//!
//! The engine receives resolved values, from which serde makes a [`Conninfo`]. The programs resolve a connection
//! string as libpq does: [`load`] uses the environment, user and password file of this process, and
//! [`Conninfo::parse`] is pure. An unsupported parameter of libpq is an error and never ignored, unless its
//! value has no effect.

mod environment;
mod error;
mod key_value;
mod passfile;
mod target;
mod uri;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use error::problem;
use serde::de::value::{self, StrDeserializer};
use serde::de::{DeserializeOwned, Error, IntoDeserializer};
use serde::{Deserialize, Deserializer};

pub use environment::load;
pub use error::ConninfoError;
pub use passfile::password_from;
pub use target::{
    Address, ChannelBinding, Conninfo, DEFAULT_PORT, DEFAULT_SOCKET_DIRECTORY, Host, Password,
    RootCertificates, SslMode, TargetSessionAttrs,
};

use super::tls::shared::SharedConfig;

/// The value of a keyword, and its source for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Setting {
    keyword: &'static str,
    /// The keyword, or the environment variable that set the value.
    source: &'static str,
    value: String,
}

/// All settings, including those of the environment.
struct Settings(Vec<Setting>);

impl Settings {
    /// Collects the given settings and those of the environment.
    fn collect(
        given: &[(String, String)],
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConninfoError> {
        for (keyword, value) in given {
            check_keyword(keyword, value)?;
        }
        for (keyword, name, harmless, why) in REFUSED {
            let value = name.and_then(variable).filter(|value| !value.is_empty());
            let is_given = given.iter().any(|(k, _)| k == keyword);
            if let (Some(name), Some(value), false) = (name, value, is_given) {
                if !harmless.contains(&value.as_str()) {
                    return Err(ConninfoError::Unsupported { setting: name.to_owned(), why });
                }
            }
        }
        let settings = KEYWORDS.iter().filter_map(|&(keyword, name)| {
            if let Some((_, value)) = given.iter().rev().find(|(k, _)| k == keyword) {
                return Some(Setting { keyword, source: keyword, value: value.clone() });
            }
            let source = name?;
            let value = variable(source).filter(|value| !value.is_empty())?;
            Some(Setting { keyword, source, value })
        });
        Ok(Self(settings.collect()))
    }

    fn find(&self, keyword: &str) -> Option<&Setting> {
        self.0.iter().find(|s| s.keyword == keyword)
    }

    /// The value, `None` if it is empty, which means the default.
    fn text(&self, keyword: &str) -> Option<String> {
        self.find(keyword).map(|s| s.value.clone()).filter(|value| !value.is_empty())
    }

    /// The choice with the name of the value; the default if the keyword is not set.
    fn one_of<T: Default + DeserializeOwned>(
        &self,
        keyword: &str,
        expected: &'static str,
    ) -> Result<T, ConninfoError> {
        let Some(setting) = self.find(keyword) else { return Ok(T::default()) };
        let name: StrDeserializer<'_, value::Error> = setting.value.as_str().into_deserializer();
        T::deserialize(name).map_err(|_| self.invalid(keyword, expected))
    }

    fn invalid(&self, keyword: &str, expected: &'static str) -> ConninfoError {
        let setting = self.find(keyword).map_or(keyword, |s| s.source).to_owned();
        ConninfoError::InvalidValue { setting, expected }
    }
}

/// Supported keywords, and their environment variables.
const KEYWORDS: [(&str, Option<&str>); 16] = [
    ("host", Some("PGHOST")),
    ("hostaddr", Some("PGHOSTADDR")),
    ("port", Some("PGPORT")),
    ("user", Some("PGUSER")),
    ("password", Some("PGPASSWORD")),
    ("dbname", Some("PGDATABASE")),
    ("passfile", Some("PGPASSFILE")),
    ("sslmode", Some("PGSSLMODE")),
    ("sslrootcert", Some("PGSSLROOTCERT")),
    ("channel_binding", Some("PGCHANNELBINDING")),
    ("application_name", Some("PGAPPNAME")),
    ("fallback_application_name", None),
    ("options", Some("PGOPTIONS")),
    ("connect_timeout", Some("PGCONNECT_TIMEOUT")),
    ("target_session_attrs", Some("PGTARGETSESSIONATTRS")),
    ("client_encoding", Some("PGCLIENTENCODING")),
];

/// Unsupported keywords of libpq: the variable, the values without effect, and the error for other values.
///
/// Ignoring other values would silently change the meaning of the connection string.
const REFUSED: [(&str, Option<&str>, &[&str], &str); 29] = [
    (
        "service",
        Some("PGSERVICE"),
        &[],
        "service files are not read; give the connection's parameters themselves",
    ),
    ("servicefile", Some("PGSERVICEFILE"), &[], "service files are not read"),
    ("sslcert", Some("PGSSLCERT"), &[], "client certificates are not supported; use a password"),
    ("sslkey", Some("PGSSLKEY"), &[], "client certificates are not supported; use a password"),
    ("sslpassword", None, &[], "client certificates are not supported; use a password"),
    ("sslcertmode", Some("PGSSLCERTMODE"), &["disable", "allow"], "client certificates are not supported"),
    ("sslcrl", Some("PGSSLCRL"), &[], "lists of revoked certificates are not supported"),
    ("sslcrldir", Some("PGSSLCRLDIR"), &[], "lists of revoked certificates are not supported"),
    ("sslnegotiation", Some("PGSSLNEGOTIATION"), &["postgres"], "only \"postgres\" is supported"),
    ("sslcompression", Some("PGSSLCOMPRESSION"), &["0"], "TLS compression is not supported"),
    ("sslsni", Some("PGSSLSNI"), &["1"], "the server's name is always sent"),
    (
        "ssl_min_protocol_version",
        Some("PGSSLMINPROTOCOLVERSION"),
        &["TLSv1", "TLSv1.1", "TLSv1.2"],
        "TLS 1.2 and 1.3 are offered",
    ),
    (
        "ssl_max_protocol_version",
        Some("PGSSLMAXPROTOCOLVERSION"),
        &["TLSv1.3"],
        "TLS 1.2 and 1.3 are offered",
    ),
    ("requiressl", Some("PGREQUIRESSL"), &["0"], "it is obsolete; write sslmode=require"),
    ("require_auth", Some("PGREQUIREAUTH"), &[], "it is not supported; channel_binding=require is"),
    ("requirepeer", Some("PGREQUIREPEER"), &[], "the owner of a socket is not checked"),
    ("krbsrvname", Some("PGKRBSRVNAME"), &["postgres"], "Kerberos is not supported"),
    ("gsslib", Some("PGGSSLIB"), &[], "GSSAPI is not supported"),
    ("gssencmode", Some("PGGSSENCMODE"), &["disable", "prefer"], "GSSAPI encryption is not supported"),
    ("gssdelegation", Some("PGGSSDELEGATION"), &["0"], "GSSAPI is not supported"),
    ("replication", None, &["false", "off", "no", "0"], "replication connections are not supported"),
    ("keepalives", None, &["1"], "they are fixed: 30 s"),
    ("keepalives_idle", None, &["0"], "they are fixed: 30 s"),
    ("keepalives_interval", None, &["0"], "they are fixed: 30 s"),
    ("keepalives_count", None, &["0"], "they are fixed: 30 s"),
    ("tcp_user_timeout", None, &["0"], "it is fixed: 0, the system's default"),
    ("load_balance_hosts", Some("PGLOADBALANCEHOSTS"), &["disable"], "the hosts are tried in order"),
    ("min_protocol_version", Some("PGMINPROTOCOLVERSION"), &["3.0"], "protocol 3.0 is spoken"),
    (
        "max_protocol_version",
        Some("PGMAXPROTOCOLVERSION"),
        &["3.0", "3.2", "latest"],
        "protocol 3.0 is spoken",
    ),
];

/// Rejects an unknown keyword, and an unsupported value.
fn check_keyword(keyword: &str, value: &str) -> Result<(), ConninfoError> {
    if KEYWORDS.iter().any(|(known, _)| *known == keyword) {
        return Ok(());
    }
    let Some((.., harmless, why)) = REFUSED.iter().find(|(known, ..)| *known == keyword) else {
        return Err(ConninfoError::UnknownKeyword { keyword: keyword.to_owned() });
    };
    if value.is_empty() || harmless.contains(&value) {
        return Ok(());
    }
    Err(ConninfoError::Unsupported { setting: keyword.to_owned(), why })
}

impl Conninfo {
    /// Parses a connection string of either form for a program; an empty one means all defaults.
    ///
    /// `options` (keyword, value) apply to keywords that the string does not set. `variable` looks up environment
    /// variables. `os_user` is the name of the operating system's user. Reads no file: passwords come from the
    /// string and `PGPASSWORD`.
    pub fn parse(
        program: &str,
        options: &[(&str, &str)],
        text: &str,
        variable: &dyn Fn(&str) -> Option<String>,
        os_user: Option<&str>,
    ) -> Result<Self, ConninfoError> {
        let owned = |(keyword, value): (&str, &str)| (keyword.to_owned(), value.to_owned());
        let mut given: Vec<_> = options.iter().copied().map(owned).collect();
        given.extend(match uri::rest_of(text) {
            Some(rest) => uri::parse(rest)?,
            None => key_value::parse(text)?,
        });
        // The program sets it after the string, which therefore has no effect.
        given.push(owned(("fallback_application_name", program)));
        let settings = Settings::collect(&given, variable)?;
        let encoding = settings.text("client_encoding");
        if encoding.as_deref() == Some("auto") {
            let expected = "the name of an encoding (auto is not supported)";
            return Err(settings.invalid("client_encoding", expected));
        }
        let named = VARIABLES.iter().filter_map(|&(name, parameter)| {
            let value = variable(name).filter(|value| !value.eq_ignore_ascii_case("default"))?;
            Some((parameter, value))
        });
        let parameters = encoding.map(|name| ("client_encoding", name)).into_iter().chain(named).collect();
        let home = variable("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        resolve(&settings, parameters, home.as_deref(), os_user)
    }
}

/// Environment variables that libpq passes to the server, in its order. `default` is the server's own value.
const VARIABLES: [(&str, &str); 3] = [("PGDATESTYLE", "datestyle"), ("PGTZ", "timezone"), ("PGGEQO", "geqo")];

/// Values that the engine receives: libpq has resolved the connection string.
#[derive(Deserialize)]
struct Resolved {
    /// The password of each host; absent if none has one.
    passwords: Option<Vec<Option<String>>>,
    #[serde(flatten)]
    values: BTreeMap<String, String>,
}

impl<'de> Deserialize<'de> for Conninfo {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Resolved::deserialize(deserializer)?.conninfo().map_err(D::Error::custom)
    }
}

impl Resolved {
    fn conninfo(self) -> Result<Conninfo, ConninfoError> {
        for (keyword, why) in [
            ("password", "give passwords, a list with the password of each host"),
            ("passfile", "the engine reads no password file; give passwords"),
        ] {
            if self.values.contains_key(keyword) {
                return Err(ConninfoError::Unsupported { setting: keyword.to_owned(), why });
            }
        }
        let given: Vec<_> = self.values.into_iter().collect();
        let settings = Settings::collect(&given, &|_| None)?;
        if settings.text("client_encoding").is_some_and(|name| !is_utf8(&name)) {
            return Err(settings.invalid("client_encoding", "UTF8, which is always used"));
        }
        let parameters = vec![("client_encoding", "UTF8".to_owned())];
        let mut conninfo = resolve(&settings, parameters, None, None)?;
        if let Some(passwords) = self.passwords {
            let (count, hosts) = (passwords.len(), conninfo.hosts.len());
            if count != hosts {
                return Err(problem(format!("{count} passwords for {hosts} hosts")));
            }
            for (host, password) in conninfo.hosts.iter_mut().zip(passwords) {
                host.password = password.map(Password::new);
            }
        }
        Ok(conninfo)
    }
}

fn is_utf8(name: &str) -> bool {
    let plain: String = name.chars().filter(|c| *c != '-' && *c != '_').collect();
    ["utf8", "unicode"].iter().any(|name| plain.eq_ignore_ascii_case(name))
}

/// Combines the settings with the defaults.
fn resolve(
    settings: &Settings,
    parameters: Vec<(&'static str, String)>,
    home: Option<&Path>,
    os_user: Option<&str>,
) -> Result<Conninfo, ConninfoError> {
    let Some(user) = settings.text("user").or_else(|| os_user.map(str::to_owned)) else {
        return Err(problem("no user name: the operating system has none for this process; give user"));
    };
    let in_home = |name: &str| home.map(|home| home.join(name));
    let root_certificates = match settings.text("sslrootcert") {
        Some(path) if path == "system" => RootCertificates::System,
        path => RootCertificates::File(path.map(PathBuf::from).or_else(|| in_home(".postgresql/root.crt"))),
    };
    Ok(Conninfo {
        hosts: hosts(settings)?,
        dbname: settings.text("dbname").unwrap_or_else(|| user.clone()),
        user,
        sslmode: ssl_mode(settings, &root_certificates)?,
        root_certificates,
        channel_binding: settings.one_of("channel_binding", "disable, prefer or require")?,
        application_name: settings
            .text("application_name")
            .or_else(|| settings.text("fallback_application_name")),
        options: settings.text("options"),
        parameters,
        connect_timeout_s: connect_timeout(settings)?,
        target_session_attrs: settings.one_of(
            "target_session_attrs",
            "any, read-write, read-only, primary, standby or prefer-standby",
        )?,
        passfile: settings.text("passfile").map(PathBuf::from).or_else(|| in_home(".pgpass")),
        passfile_ignored: None,
        tls: SharedConfig::default(),
    })
}

/// The TLS mode.
///
/// `sslrootcert=system` implies `verify-full` and allows nothing weaker: the certificates of public authorities
/// are only meaningful if the host name is checked.
fn ssl_mode(settings: &Settings, roots: &RootCertificates) -> Result<SslMode, ConninfoError> {
    let expected = "disable, allow, prefer, require, verify-ca or verify-full";
    let mode = settings.one_of::<SslMode>("sslmode", expected)?;
    match (roots, settings.find("sslmode")) {
        (RootCertificates::System, None) => Ok(SslMode::VerifyFull),
        (RootCertificates::System, Some(_)) if mode < SslMode::VerifyFull => {
            Err(problem("sslrootcert=system needs sslmode=verify-full"))
        }
        _ => Ok(mode),
    }
}

/// Connection timeout in seconds; zero or less means no limit.
fn connect_timeout(settings: &Settings) -> Result<Option<u32>, ConninfoError> {
    let Some(setting) = settings.find("connect_timeout").filter(|s| !s.value.is_empty()) else {
        return Ok(None);
    };
    let invalid = |_| settings.invalid("connect_timeout", "a whole number of seconds");
    let seconds = setting.value.trim().parse::<i32>().map_err(invalid)?;
    Ok(u32::try_from(seconds).ok().filter(|&s| s > 0))
}

/// The hosts: as many as `hostaddr`, or else `host`, has parts. A single port applies to all.
fn hosts(settings: &Settings) -> Result<Vec<Host>, ConninfoError> {
    let list = |keyword| -> Vec<String> {
        let text = settings.text(keyword);
        text.map(|text| text.split(',').map(|part| part.trim().to_owned()).collect()).unwrap_or_default()
    };
    let (names, addresses, ports) = (list("host"), list("hostaddr"), list("port"));
    let count = if addresses.is_empty() { names.len().max(1) } else { addresses.len() };
    if !addresses.is_empty() && !names.is_empty() && names.len() != count {
        return Err(problem(format!("{} values of host for {count} of hostaddr", names.len())));
    }
    if ports.len() > 1 && ports.len() != count {
        return Err(problem(format!("{} ports for {count} hosts", ports.len())));
    }
    let password = settings.text("password").map(Password::new);
    let nth = |list: &[String], i: usize| list.get(i).filter(|part| !part.is_empty()).cloned();
    (0..count)
        .map(|i| {
            let port = nth(&ports, if ports.len() == 1 { 0 } else { i });
            let port = port.map_or(Ok(DEFAULT_PORT), |port| parse_port(settings, &port))?;
            let (name, address) = address(settings, nth(&names, i), nth(&addresses, i), port)?;
            Ok(Host { name, address, password: password.clone(), is_password_from_file: false })
        })
        .collect()
}

fn address(
    settings: &Settings,
    name: Option<String>,
    ip: Option<String>,
    port: u16,
) -> Result<(String, Address), ConninfoError> {
    if let Some(ip) = ip {
        let invalid = || settings.invalid("hostaddr", "an IPv4 or IPv6 address");
        let parsed: IpAddr = ip.parse().map_err(|_| invalid())?;
        let name = name.unwrap_or(ip);
        return Ok((name.clone(), Address::Tcp { name, ip: Some(parsed), port }));
    }
    let name = name.unwrap_or_else(|| DEFAULT_SOCKET_DIRECTORY.to_owned());
    if name.starts_with('@') {
        return Err(settings
            .invalid("host", "a name, an address or a directory (abstract sockets are not supported)"));
    }
    if name.starts_with('/') {
        let path = PathBuf::from(&name).join(format!(".s.PGSQL.{port}"));
        return Ok((name, Address::Unix(path)));
    }
    let ip = name.parse().ok();
    Ok((name.clone(), Address::Tcp { name, ip, port }))
}

/// Parses a port. The error does not contain the value, which may be part of a password in a URI.
fn parse_port(settings: &Settings, text: &str) -> Result<u16, ConninfoError> {
    let port = text.parse().ok().filter(|&port| port > 0);
    port.ok_or_else(|| settings.invalid("port", "a number from 1 to 65535"))
}
