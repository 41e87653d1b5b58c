//! Connection parameters: libpq's connection strings, environment variables and password file.
//!
//! [`Conninfo::parse`] is pure: it reads the environment through a closure. [`load`] uses the environment, user
//! and password file of this process, for the driver. [`load_for`] does so for a program with libpq's
//! [`SessionDefaults`]. An unsupported parameter of libpq is an error and never ignored, unless its value has
//! no effect.

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
