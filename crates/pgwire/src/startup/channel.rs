//! What is known of the channel to the server.

/// What is encrypted between us and the server, which decides how a password can be proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Channel {
    /// Nothing: a Unix socket or plain TCP.
    Plain,
    /// TLS; the hash of the server's certificate where it has one: [`super::super::tls::TlsSession::end_point_hash`].
    Tls {
        /// What channel binding binds to.
        end_point_hash: Option<Vec<u8>>,
    },
}
