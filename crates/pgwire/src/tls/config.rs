//! TLS configuration of a connection string, shared by all connections. Reads the files of root certificates.

use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use rustls::client::Resumption;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::super::conninfo::{Conninfo, RootCertificates, SslMode};
use super::certificate::{Roots, Verifier};
use super::error::TlsError;

/// The configuration for `sslmode` and `sslrootcert`. Certificates are read at the first call.
pub fn client_config(conninfo: &Conninfo) -> Result<Arc<ClientConfig>, TlsError> {
    if let Some(config) = conninfo.tls.0.get() {
        return Ok(Arc::clone(config));
    }
    let config = build(conninfo)?;
    Ok(Arc::clone(conninfo.tls.0.get_or_init(|| config)))
}

/// Builds the configuration.
///
/// As in libpq, `require` and weaker modes verify the chain if the default root certificate file exists, and do
/// not fail if it is missing.
fn build(conninfo: &Conninfo) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Verifier {
        algorithms: provider.signature_verification_algorithms,
        roots: roots(conninfo)?,
        check_name: conninfo.sslmode == SslMode::VerifyFull,
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Tls)?;
    let mut config =
        builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth();
    // PostgreSQL does not resume sessions, and a resumed session has no certificate for channel binding.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// The trusted certificates, `None` if the mode does not verify.
fn roots(conninfo: &Conninfo) -> Result<Option<Roots>, TlsError> {
    let must_verify = conninfo.sslmode >= SslMode::VerifyCa;
    let sslmode = conninfo.sslmode;
    let missing = |path: &str, why: &str| TlsError::RootCertificates {
        sslmode,
        path: path.to_owned(),
        why: why.to_owned(),
    };
    let certificates = match &conninfo.root_certificates {
        RootCertificates::System => rustls_native_certs::load_native_certs().certs,
        RootCertificates::Default(None) if must_verify => {
            return Err(missing("~/.postgresql/root.crt", "there is no home directory"));
        }
        RootCertificates::Default(None) => return Ok(None),
        RootCertificates::Default(Some(path)) | RootCertificates::File(path) => match read(path) {
            Ok(certificates) => certificates,
            Err(e) if e.kind() == io::ErrorKind::NotFound && !must_verify => return Ok(None),
            Err(e) => return Err(missing(&path.display().to_string(), &e.to_string())),
        },
    };
    let mut store = RootCertStore::empty();
    let (_added, _ignored) = store.add_parsable_certificates(certificates.iter().cloned());
    if certificates.is_empty() {
        return Err(missing("the system's store", "there are none"));
    }
    Ok(Some(Roots { store, certificates }))
}

/// The certificates of a PEM file, at least one.
fn read(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let text = fs::read(path)?;
    let certificates = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "it holds no certificate in PEM form")),
    }
}
