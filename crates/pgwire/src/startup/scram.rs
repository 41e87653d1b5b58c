//! Authentication of the client: SCRAM with or without channel binding, MD5, cleartext.

use std::mem;

use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{
    ChannelBinding as Binding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256,
};

use super::error::StartupError;
use crate::backend::{Authentication, Mechanisms, ProtocolError};
use crate::conninfo::{ChannelBinding, Conninfo, Host, Password};
use crate::frontend;

/// State of the client side.
pub(super) struct Authenticator {
    user: String,
    password: Option<Password>,
    passfile_ignored: Option<String>,
    channel_binding: ChannelBinding,
    channel: Channel,
    progress: Progress,
}

enum Progress {
    /// No request yet.
    Begun,
    /// The password was sent, in clear text or hashed.
    PasswordSent,
    /// The client-first-message of SCRAM was sent.
    ScramBegun { scram: ScramSha256, bound: bool },
    /// The client proof was sent. The server signature is expected.
    ScramProven { scram: ScramSha256, bound: bool },
    /// The server signature was verified.
    ScramVerified { bound: bool },
    /// Authentication failed. No further request is answered.
    Failed,
}

impl Authenticator {
    pub(super) fn new(conninfo: &Conninfo, host: &Host, channel: Channel) -> Self {
        Self {
            user: conninfo.user.clone(),
            password: host.password.clone(),
            passfile_ignored: conninfo.passfile_ignored.clone(),
            channel_binding: conninfo.channel_binding,
            channel,
            progress: Progress::Begun,
        }
    }

    /// Answers an authentication request.
    pub(super) fn answer(
        &mut self,
        demand: &Authentication<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), StartupError> {
        let progress = mem::replace(&mut self.progress, Progress::Failed);
        self.progress = match (progress, demand) {
            (Progress::Begun, Authentication::CleartextPassword) => {
                frontend::password(out, self.unbound_password()?.reveal().as_bytes())?;
                Progress::PasswordSent
            }
            (Progress::Begun, Authentication::Md5Password { salt }) => {
                let password = self.unbound_password()?.reveal().as_bytes();
                frontend::password(out, md5_hash(self.user.as_bytes(), password, *salt).as_bytes())?;
                Progress::PasswordSent
            }
            (Progress::Begun, Authentication::Sasl(mechanisms)) => self.begin_scram(mechanisms, out)?,
            (Progress::ScramBegun { mut scram, bound }, Authentication::SaslContinue(data)) => {
                scram.update(data).map_err(|_| ProtocolError::Malformed { message: "SCRAM challenge" })?;
                frontend::sasl_response(out, scram.message())?;
                Progress::ScramProven { scram, bound }
            }
            (Progress::ScramProven { mut scram, bound }, Authentication::SaslFinal(data)) => {
                scram.finish(data).map_err(|_| StartupError::ServerNotProven)?;
                Progress::ScramVerified { bound }
            }
            (Progress::Begun, Authentication::Other(number)) => {
                let method = match number {
                    2 => "Kerberos 5".to_owned(),
                    7 | 8 => "GSSAPI".to_owned(),
                    9 => "SSPI".to_owned(),
                    other => format!("number {other}"),
                };
                return Err(StartupError::UnsupportedAuthentication { method });
            }
            (_, _) => {
                let (message, doing) = ("Authentication", "logging in");
                return Err(ProtocolError::Unexpected { message, doing }.into());
            }
        };
        Ok(())
    }

    /// Handles AuthenticationOk: fails unless the required server signature was verified.
    pub(super) fn finish(&self) -> Result<(), StartupError> {
        let bound = match self.progress {
            Progress::Begun | Progress::PasswordSent => false,
            Progress::ScramVerified { bound } => bound,
            Progress::ScramBegun { .. } | Progress::ScramProven { .. } | Progress::Failed => {
                return Err(StartupError::ServerNotProven);
            }
        };
        if self.channel_binding == ChannelBinding::Require && !bound {
            return Err(StartupError::NotBound { method: "no proof bound to its certificate".into() });
        }
        Ok(())
    }

    fn begin_scram(&self, mechanisms: &Mechanisms<'_>, out: &mut Vec<u8>) -> Result<Progress, StartupError> {
        let (mechanism, binding) = self.choose(mechanisms)?;
        let scram = ScramSha256::new(self.password()?.reveal().as_bytes(), binding);
        frontend::sasl_initial_response(out, mechanism, scram.message())?;
        Ok(Progress::ScramBegun { scram, bound: mechanism == SCRAM_SHA_256_PLUS })
    }

    /// The strongest mechanism that both sides support, and the GS2 channel-binding flag.
    ///
    /// The flag "y" of an unbound exchange over TLS lets the server detect that an attacker removed its
    /// stronger offer.
    fn choose(&self, mechanisms: &Mechanisms<'_>) -> Result<(&'static str, Binding), StartupError> {
        let end_point_hash = match &self.channel {
            Channel::Tls { end_point_hash } if self.channel_binding != ChannelBinding::Disable => {
                end_point_hash
            }
            _ => &None,
        };
        match end_point_hash {
            Some(hash) if mechanisms.has(SCRAM_SHA_256_PLUS) => {
                Ok((SCRAM_SHA_256_PLUS, Binding::tls_server_end_point(hash.clone())))
            }
            _ if self.channel_binding == ChannelBinding::Require => {
                Err(StartupError::NotBound { method: mechanisms.list() })
            }
            _ if !mechanisms.has(SCRAM_SHA_256) => {
                Err(StartupError::UnsupportedAuthentication { method: mechanisms.list() })
            }
            Some(_) => Ok((SCRAM_SHA_256, Binding::unrequested())),
            None => Ok((SCRAM_SHA_256, Binding::unsupported())),
        }
    }

    /// The password for a method without channel binding.
    fn unbound_password(&self) -> Result<&Password, StartupError> {
        if self.channel_binding == ChannelBinding::Require {
            return Err(StartupError::NotBound { method: "a bare password".into() });
        }
        self.password()
    }

    fn password(&self) -> Result<&Password, StartupError> {
        self.password.as_ref().ok_or_else(|| StartupError::NoPassword {
            user: self.user.clone(),
            note: self.passfile_ignored.as_ref().map(|note| format!(" ({note})")).unwrap_or_default(),
        })
    }
}

/// Encryption of the channel, which limits the authentication methods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Channel {
    /// Not encrypted: a Unix socket or plain TCP.
    Plain,
    /// TLS, with the hash of the server's certificate if one is defined:
    /// [`crate::tls::TlsSession::end_point_hash`].
    Tls {
        /// Data for channel binding.
        end_point_hash: Option<Vec<u8>>,
    },
}
