//! Whom to connect to, and as whom: libpq's connection strings, its environment variables and its password file.
//!
//! [`Conninfo::parse`] is pure: it gets the environment as a closure. [`load`] gives it this process's
//! environment, user and password file, for the driver; [`load_for`] does so for a program that has libpq's [`SessionDefaults`]. What libpq has and we do not is an error that says so, never ignored,
//! unless ignoring it is what the value asks for.

mod environment;
mod error;
mod given;
mod key_value;
mod keywords;
mod parse;
mod passfile;
mod session;
mod settings;
mod target;
mod uri;

pub use environment::{load, load_for};
pub use error::ConninfoError;
pub use passfile::password_from;
pub use session::SessionDefaults;
pub use target::{
    Address, ChannelBinding, Conninfo, DEFAULT_PORT, DEFAULT_SOCKET_DIRECTORY, Host, Password,
    RootCertificates, SslMode, TargetSessionAttrs,
};
