//! Resolution of keywords, environment and defaults to a [`Conninfo`].

use std::net::IpAddr;
use std::path::PathBuf;

use super::super::tls::SharedConfig;
use super::error::{ConninfoError, problem};
use super::given::Settings;
use super::session::{self, SessionDefaults};
use super::target::{
    Address, ChannelBinding, Conninfo, DEFAULT_PORT, DEFAULT_SOCKET_DIRECTORY, Host, Password,
    RootCertificates, SslMode, TargetSessionAttrs,
};

/// Combines given values (the last of equal keywords is used), the environment and defaults.
pub(super) fn resolve(
    defaults: SessionDefaults,
    given: &[(String, String)],
    variable: &dyn Fn(&str) -> Option<String>,
    os_user: Option<&str>,
) -> Result<Conninfo, ConninfoError> {
    let settings = Settings::collect(given, variable, defaults == SessionDefaults::Driver)?;
    let user = match (settings.text("user"), os_user) {
        (Some(user), _) => user,
        (None, Some(user)) => user.to_owned(),
        (None, None) => {
            return Err(problem("no user name: the operating system has none for this process; give user"));
        }
    };
    let home = variable("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    let in_home = |name: &str| home.as_ref().map(|home| home.join(name));
    let root_certificates = match settings.text("sslrootcert") {
        None => RootCertificates::Default(in_home(".postgresql/root.crt")),
        Some(path) if path == "system" => RootCertificates::System,
        Some(path) => RootCertificates::File(path.into()),
    };
    Ok(Conninfo {
        hosts: hosts(&settings)?,
        dbname: settings.text("dbname").unwrap_or_else(|| user.clone()),
        user,
        sslmode: ssl_mode(&settings, &root_certificates)?,
        root_certificates,
        channel_binding: settings.one_of(
            "channel_binding",
            "disable, prefer or require",
            &CHANNEL_BINDINGS,
        )?,
        application_name: session::application_name(defaults, &settings),
        options: settings.text("options"),
        parameters: session::parameters(defaults, &settings, variable)?,
        connect_timeout_s: connect_timeout(&settings)?,
        target_session_attrs: settings.one_of(
            "target_session_attrs",
            "any, read-write, read-only, primary, standby or prefer-standby",
            &TARGET_SESSION_ATTRS,
        )?,
        passfile: settings.text("passfile").map(PathBuf::from).or_else(|| in_home(".pgpass")),
        passfile_ignored: None,
        tls: SharedConfig::default(),
    })
}

const SSL_MODES: [(&str, SslMode); 6] = [
    ("prefer", SslMode::Prefer),
    ("disable", SslMode::Disable),
    ("allow", SslMode::Allow),
    ("require", SslMode::Require),
    ("verify-ca", SslMode::VerifyCa),
    ("verify-full", SslMode::VerifyFull),
];

const CHANNEL_BINDINGS: [(&str, ChannelBinding); 3] = [
    ("prefer", ChannelBinding::Prefer),
    ("disable", ChannelBinding::Disable),
    ("require", ChannelBinding::Require),
];

const TARGET_SESSION_ATTRS: [(&str, TargetSessionAttrs); 6] = [
    ("any", TargetSessionAttrs::Any),
    ("read-write", TargetSessionAttrs::ReadWrite),
    ("read-only", TargetSessionAttrs::ReadOnly),
    ("primary", TargetSessionAttrs::Primary),
    ("standby", TargetSessionAttrs::Standby),
    ("prefer-standby", TargetSessionAttrs::PreferStandby),
];

/// The TLS mode.
///
/// `sslrootcert=system` implies `verify-full` and allows nothing weaker: the certificates of public authorities
/// are only meaningful if the host name is checked.
fn ssl_mode(settings: &Settings, roots: &RootCertificates) -> Result<SslMode, ConninfoError> {
    let expected = "disable, allow, prefer, require, verify-ca or verify-full";
    let mode = settings.one_of("sslmode", expected, &SSL_MODES)?;
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
    let seconds: i32 =
        setting.value.trim().parse().map_err(|_| setting.invalid("a whole number of seconds"))?;
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
