//! TLS configuration shared by all clones of a connection string.

use std::sync::{Arc, OnceLock};

use rustls::ClientConfig;

/// A configuration that is built once, because reading the system's certificates for each of 2000 clients would
/// take longer than connecting.
///
/// It is derived from the connection string, so all values compare equal.
#[derive(Debug, Clone, Default)]
pub struct SharedConfig(pub(super) Arc<OnceLock<Arc<ClientConfig>>>);

impl PartialEq for SharedConfig {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for SharedConfig {}
