//! Server certificate: hash for channel binding, verification of its chain and name.

use ring::digest::{self, SHA256, SHA384, SHA512};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{
    WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature_with_raw_key,
};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use x509_cert::Certificate;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{Decode, Encode};

/// Signature algorithms by their hash. RFC 5929 replaces MD5 and SHA-1 with SHA-256.
const SIGNATURES: [(&str, &digest::Algorithm); 11] = [
    ("1.2.840.113549.1.1.4", &SHA256),  // RSA with MD5
    ("1.2.840.113549.1.1.5", &SHA256),  // RSA with SHA-1
    ("1.2.840.10045.4.1", &SHA256),     // ECDSA with SHA-1
    ("1.2.840.113549.1.1.11", &SHA256), // RSA
    ("1.2.840.113549.1.1.12", &SHA384),
    ("1.2.840.113549.1.1.13", &SHA512),
    ("1.2.840.10045.4.3.2", &SHA256), // ECDSA
    ("1.2.840.10045.4.3.3", &SHA384),
    ("1.2.840.10045.4.3.4", &SHA512),
    ("2.16.840.1.101.3.4.3.2", &SHA256), // DSA
    ("1.2.840.10040.4.3", &SHA256),      // DSA with SHA-1
];

/// `tls-server-end-point` of RFC 5929: the certificate, hashed with the hash of its signature algorithm.
///
/// `None` if there is no single hash, such as with Ed25519.
pub(super) fn end_point_hash(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let parsed = Certificate::from_der(certificate).ok()?;
    let signature = parsed.signature_algorithm.oid;
    let (_, hash) = SIGNATURES.iter().find(|(oid, _)| ObjectIdentifier::new(oid) == Ok(signature))?;
    Some(digest::digest(hash, certificate).as_ref().to_vec())
}

fn public_key(certificate: &CertificateDer<'_>) -> Option<SubjectPublicKeyInfoDer<'static>> {
    let parsed = Certificate::from_der(certificate).ok()?;
    Some(parsed.tbs_certificate.subject_public_key_info.to_der().ok()?.into())
}

/// Whether the common name of a certificate without alternative names is the server's.
///
/// This usage is obsolete, but libpq and the example in PostgreSQL's manual still use it.
fn common_name_is(certificate: &CertificateDer<'_>, server_name: &ServerName<'_>) -> bool {
    let Ok(parsed) = Certificate::from_der(certificate) else { return false };
    let mut extensions = parsed.tbs_certificate.extensions.iter().flatten();
    if extensions.any(|extension| extension.extn_id == SUBJECT_ALT_NAME) {
        return false;
    }
    let attributes = parsed.tbs_certificate.subject.0.iter().flat_map(|part| part.0.iter());
    let mut names = attributes.filter(|attribute| attribute.oid == COMMON_NAME);
    names.any(|name| name.value.value().eq_ignore_ascii_case(server_name.to_str().as_bytes()))
}

const SUBJECT_ALT_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// Verifier of certificates. It always verifies the signature of the handshake, without which the hash for
/// channel binding would be meaningless.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) algorithms: WebPkiSupportedAlgorithms,
    /// Trusted roots; `None` to accept any certificate.
    pub(super) roots: Option<Roots>,
    /// Whether the host name is verified.
    pub(super) check_name: bool,
}

/// Certificates that are trusted.
#[derive(Debug)]
pub(super) struct Roots {
    pub(super) store: RootCertStore,
    /// The complete certificates: a server may use one of them itself.
    pub(super) certificates: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(roots) = &self.roots {
            let certificate = ParsedCertificate::try_from(end_entity)?;
            // A trusted self-signed certificate needs no chain. It is usually a CA certificate, which cannot be
            // the last one of a chain.
            if !roots.certificates.contains(end_entity) {
                verify_server_cert_signed_by_trust_anchor(
                    &certificate,
                    &roots.store,
                    intermediates,
                    now,
                    self.algorithms.all,
                )?;
            }
            if self.check_name && !common_name_is(end_entity, server_name) {
                verify_server_name(&certificate, server_name)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        // Verify with the bare key: with some versions of openssl, the example in PostgreSQL's manual creates
        // certificates of version 1. Whether those are acceptable is not decided here.
        let key = public_key(certificate).ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))?;
        verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
