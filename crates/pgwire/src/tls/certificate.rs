//! The server's certificate: its hash for channel binding, and the check of its chain and name.

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

/// Signature algorithms by the hash in them; RFC 5929 says to use SHA-256 in place of MD5 and SHA-1.
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

/// The `tls-server-end-point` of RFC 5929: the certificate hashed by the algorithm it was signed with; `None`
/// for one that has no single hash, such as Ed25519.
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

/// Whether a certificate without alternative names has the server's as its common name, where certificates had
/// it in former times; libpq and the recipe of PostgreSQL's manual still do.
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

/// How far a certificate is checked. The signature of the handshake always is: without it the hash that channel
/// binding binds to would prove nothing.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) algorithms: WebPkiSupportedAlgorithms,
    /// What it must descend from; `None`: anything goes.
    pub(super) roots: Option<Roots>,
    /// Whether it must carry the host's name.
    pub(super) check_name: bool,
}

/// Certificates that are trusted.
#[derive(Debug)]
pub(super) struct Roots {
    pub(super) store: RootCertStore,
    /// The same, whole: a server may use one of them itself.
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
            // A self-signed certificate that the user trusts by name needs no chain; it is usually one that may
            // sign others, which a chain's last link must not be.
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
        // By the bare key: the recipe of PostgreSQL's manual makes certificates of version 1 with some versions of
        // openssl, and whether those will do is not decided here.
        let key = public_key(certificate).ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))?;
        verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
