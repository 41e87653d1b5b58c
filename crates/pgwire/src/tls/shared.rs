//! A TLS configuration that all clones of a connection string share.

use std::sync::{Arc, OnceLock};

use rustls::ClientConfig;

/// A configuration that is built once: to read the system's certificates anew for each of 2000 clients would take
/// longer than all the rest of connecting. It says nothing that the connection string does not, so all are equal.
#[derive(Debug, Clone, Default)]
pub struct SharedConfig(pub(super) Arc<OnceLock<Arc<ClientConfig>>>);

impl PartialEq for SharedConfig {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for SharedConfig {}
