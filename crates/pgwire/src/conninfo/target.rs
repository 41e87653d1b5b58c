//! Whom to connect to, as whom, and how: the values of a connection string.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use super::super::tls::SharedConfig;

/// The port of a server that none is named for.
pub const DEFAULT_PORT: u16 = 5432;

/// Where Debian's PostgreSQL, and most others', put the socket.
pub const DEFAULT_SOCKET_DIRECTORY: &str = "/var/run/postgresql";

/// Everything that a connection string, the environment and the defaults say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conninfo {
    /// The servers to try, in order; never empty.
    pub hosts: Vec<Host>,
    /// The role to log in as.
    pub user: String,
    /// The database.
    pub dbname: String,
    /// Whether and how to encrypt.
    pub sslmode: SslMode,
    /// What the server's certificate must descend from.
    pub root_certificates: RootCertificates,
    /// Whether the password's proof must be bound to the server's certificate.
    pub channel_binding: ChannelBinding,
    /// The name shown in `pg_stat_activity`.
    pub application_name: Option<String>,
    /// Command-line options for the server process.
    pub options: Option<String>,
    /// What else a session begins with: parameters of the server and their values.
    pub parameters: Vec<(&'static str, String)>,
    /// Limit on connecting to one host; `None` is no limit.
    pub connect_timeout_s: Option<u32>,
    /// What kind of server is wanted.
    pub target_session_attrs: TargetSessionAttrs,
    /// The password file, which [`super::load`] reads.
    pub passfile: Option<PathBuf>,
    /// Why a password file that exists was not used: a hint for when a password is missing.
    pub passfile_ignored: Option<String>,
    /// The TLS configuration that follows from all this, made when it is first needed and shared by all clones.
    pub(crate) tls: SharedConfig,
}

/// One server to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its name as given: what a certificate must carry for `verify-full`, and what messages call it.
    pub name: String,
    /// Where to connect.
    pub address: Address,
    /// The password, given or found in the password file.
    pub password: Option<Password>,
    /// Whether it is from the password file.
    pub is_password_from_file: bool,
}

/// Where to connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// A host that is to be looked up, unless its address is given.
    Tcp {
        /// The name to look up.
        name: String,
        /// The address, if there is nothing to look up.
        ip: Option<IpAddr>,
        /// The port.
        port: u16,
    },
}

impl Address {
    /// As libpq shows them: of a Unix socket its directory, and the number that its name ends with.
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

/// A password, which no log, message or debug output shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// Keeps a password.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The password itself: for its proof to the server, and nothing else.
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

/// Whether and how to encrypt. Never over a Unix socket, whatever the mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SslMode {
    /// No encryption.
    Disable,
    /// Plain first, encrypted if the server refuses that.
    Allow,
    /// Encrypted if the server can, or else plain.
    Prefer,
    /// Encrypted; verified as by `verify-ca` if a root certificate file exists.
    Require,
    /// Encrypted, and the certificate descends from a trusted one.
    VerifyCa,
    /// The same, and the certificate is for the host we asked for.
    VerifyFull,
}

impl fmt::Display for SslMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disable => "disable",
            Self::Allow => "allow",
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::VerifyCa => "verify-ca",
            Self::VerifyFull => "verify-full",
        })
    }
}

/// Where trusted certificates come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootCertificates {
    /// libpq's default file, which need not exist unless we must verify; `None` where there is no home directory.
    Default(Option<PathBuf>),
    /// A file named by the user.
    File(PathBuf),
    /// The operating system's.
    System,
}

/// Whether the password's proof must be bound to the server's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelBinding {
    /// Do not bind.
    Disable,
    /// Bind where the server can.
    Prefer,
    /// Refuse a server that does not.
    Require,
}

/// What kind of server is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetSessionAttrs {
    /// Whatever answers.
    Any,
    /// One whose sessions can write.
    ReadWrite,
    /// One whose sessions cannot write.
    ReadOnly,
    /// One that is not in recovery.
    Primary,
    /// One that is in recovery.
    Standby,
    /// A standby, or else whatever answers.
    PreferStandby,
}

impl Conninfo {
    /// Gives every host this password, or none.
    pub fn use_password(&mut self, password: Option<&str>) {
        for host in &mut self.hosts {
            host.password = password.map(Password::new);
            host.is_password_from_file = false;
        }
    }
}
