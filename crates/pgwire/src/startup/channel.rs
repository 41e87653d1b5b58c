//! Security of the channel to the server.

/// Encryption of the channel, which limits the authentication methods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Channel {
    /// Not encrypted: a Unix socket or plain TCP.
    Plain,
    /// TLS, with the hash of the server's certificate if one is defined:
    /// [`super::super::tls::TlsSession::end_point_hash`].
    Tls {
        /// Data for channel binding.
        end_point_hash: Option<Vec<u8>>,
    },
}
