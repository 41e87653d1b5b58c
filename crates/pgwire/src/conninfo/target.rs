//! Parameters of a connection: servers, user, database and options.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::tls::shared::SharedConfig;

/// The default port.
pub const DEFAULT_PORT: u16 = 5432;

/// Socket directory of Debian and most other distributions.
pub const DEFAULT_SOCKET_DIRECTORY: &str = "/var/run/postgresql";

/// Connection parameters, with all defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conninfo {
    /// The servers to try, in order; never empty.
    pub hosts: Vec<Host>,
    /// The role to log in as.
    pub user: String,
    /// The database.
    pub dbname: String,
    /// Encryption mode.
    pub sslmode: SslMode,
    /// Trusted root certificates.
    pub root_certificates: RootCertificates,
    /// Channel binding of SCRAM.
    pub channel_binding: ChannelBinding,
    /// The name shown in `pg_stat_activity`.
    pub application_name: Option<String>,
    /// Command-line options for the server process.
    pub options: Option<String>,
    /// Further parameters of the server for the startup message, and their values.
    pub parameters: Vec<(&'static str, String)>,
    /// Timeout of connecting to one host; `None` for no timeout.
    pub connect_timeout_s: Option<u32>,
    /// Required session attributes.
    pub target_session_attrs: TargetSessionAttrs,
    /// The password file, which [`super::load`] reads.
    pub passfile: Option<PathBuf>,
    /// Why an existing password file was not used: a hint if a password is missing.
    pub passfile_ignored: Option<String>,
    /// TLS configuration, created on first use and shared by all clones.
    pub(crate) tls: SharedConfig,
}

/// One server to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Name as given: checked against the certificate with `verify-full`, and used in messages.
    pub name: String,
    /// Where to connect.
    pub address: Address,
    /// The password, from the connection string or the password file.
    pub password: Option<Password>,
    /// Whether the password comes from the password file.
    pub is_password_from_file: bool,
}

/// Address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// A host name to resolve, or an IP address.
    Tcp {
        /// The name to look up.
        name: String,
        /// The IP address, if no name has to be resolved.
        ip: Option<IpAddr>,
        /// The port.
        port: u16,
    },
}

impl Address {
    /// Host and port as libpq shows them. For a Unix socket these are its directory and the number at the end
    /// of its name.
    #[must_use]
    pub fn host_and_port(&self) -> (String, String) {
        match self {
            Self::Unix(path) => {
                let directory = path.parent().unwrap_or(path);
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let port = name.rsplit('.').next().unwrap_or_default();
                (directory.display().to_string(), port.to_owned())
            }
            Self::Tcp { name, port, .. } => (name.clone(), port.to_string()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Tcp { ip: Some(IpAddr::V6(ip)), port, .. } => write!(f, "[{ip}]:{port}"),
            Self::Tcp { ip: Some(ip), port, .. } => write!(f, "{ip}:{port}"),
            Self::Tcp { name, port, .. } => write!(f, "{name}:{port}"),
        }
    }
}

/// A password, which is never shown in logs, messages or debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// Wraps a password.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The password itself, for authentication only.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Encryption mode. Unix sockets are never encrypted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SslMode {
    /// No encryption.
    Disable,
    /// Plain first, encrypted if the server rejects that.
    Allow,
    /// Encrypted if the server supports it, else plain.
    #[default]
    Prefer,
    /// Encrypted; verified as in `verify-ca` if a root certificate file exists.
    Require,
    /// Encrypted, with a certificate signed by a trusted authority.
    VerifyCa,
    /// Like `VerifyCa`, with a certificate for the requested host name.
    VerifyFull,
}

impl fmt::Display for SslMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Source of trusted certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootCertificates {
    /// A file, which may be missing unless verification is required; `None` without a home directory.
    File(Option<PathBuf>),
    /// The operating system's certificates.
    System,
}

/// Channel binding of SCRAM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChannelBinding {
    /// No channel binding.
    Disable,
    /// Channel binding if the server supports it.
    #[default]
    Prefer,
    /// Fail if the server does not support it.
    Require,
}

/// Required session attributes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TargetSessionAttrs {
    /// Any server.
    #[default]
    Any,
    /// A server with writable sessions.
    ReadWrite,
    /// A server with read-only sessions.
    ReadOnly,
    /// A server that is not in recovery.
    Primary,
    /// A server in recovery.
    Standby,
    /// A standby, or else any server.
    PreferStandby,
}

impl Conninfo {
    /// Sets the password of every host.
    pub fn use_password(&mut self, password: Option<&str>) {
        for host in &mut self.hosts {
            host.password = password.map(Password::new);
            host.is_password_from_file = false;
        }
    }
}
