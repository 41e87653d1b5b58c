//! TLS client against rustls's server in memory, with certificates created by the `openssl` command. Without
//! the command, these tests print that they are skipped.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::{env, fs, process};

use proptest::collection::vec;
use proptest::prelude::*;
use rustls::{ServerConfig, ServerConnection};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::super::conninfo::{Address, Conninfo, SslMode};
use super::super::tls::{
    Encryption, TlsError, TlsSession, client_config, first_attempt, read_answer, second_attempt,
};
use super::hex;

#[test]
fn the_response_to_ssl_request_is_exactly_one_byte() {
    use SslMode::{Prefer, Require};
    let table = [
        (&b""[..], Prefer, Ok(None)),
        (b"S", Prefer, Ok(Some(Encryption::Tls))),
        (b"N", Prefer, Ok(Some(Encryption::Plain))),
        (b"N", Require, Err(TlsError::NoTls { sslmode: Require })),
        (b"SZ", Require, Err(TlsError::PlainWithTlsAnswer)),
        (b"NZ", Prefer, Err(TlsError::PlainWithTlsAnswer)),
        (b"E\0\0", Prefer, Err(TlsError::TlsAnswer { answer: b'E' })),
        (b"H", Require, Err(TlsError::TlsAnswer { answer: b'H' })),
    ];
    for (received, sslmode, expected) in table {
        assert_eq!(read_answer(received, sslmode), expected);
    }
}

#[test]
fn sslmode_determines_the_order_of_attempts() {
    use Encryption::{Plain, Tls};
    let tcp = Address::Tcp { name: "h".into(), ip: None, port: 1 };
    let unix = Address::Unix("/run/.s.PGSQL.1".into());
    let table = [
        (SslMode::Disable, Plain, None),
        (SslMode::Allow, Plain, Some(Tls)),
        (SslMode::Prefer, Tls, Some(Plain)),
        (SslMode::Require, Tls, None),
        (SslMode::VerifyFull, Tls, None),
    ];
    for (mode, first, second) in table {
        assert_eq!(first_attempt(mode, &tcp), first);
        assert_eq!(second_attempt(mode, &tcp, first), second);
        assert_eq!(first_attempt(mode, &unix), Plain);
        assert_eq!(second_attempt(mode, &unix, Plain), None);
    }
}

#[test]
fn a_handshake_fails_because_of_tls_or_a_certificate() {
    let failed = TlsError::Tls(rustls::Error::HandshakeNotComplete);
    let untrusted = TlsError::Certificate(rustls::CertificateError::UnknownIssuer);
    assert!(failed.is_failed_handshake() && untrusted.is_failed_handshake());
    assert!(!TlsError::PlainWithTlsAnswer.is_failed_handshake());
}

/// The host name is set as in PostgreSQL's manual. (The rest of that example is in `tests/login.rs`.)
#[test]
fn the_common_name_is_checked_without_alternative_names() {
    let Some(pair) = Pair::make("cn", &["-newkey", "rsa:2048", "-subj", "/CN=DB.example"]) else { return };
    let own = pair.file("crt");
    assert_eq!(accepts(&pair, "host=db.example", "verify-full", Some(&own)), Ok(()));
    assert!(accepts(&pair, "host=other.example", "verify-full", Some(&own)).is_err());
}

#[test]
fn the_common_name_is_ignored_with_alternative_names() {
    let says =
        ["-newkey", "rsa:2048", "-subj", "/CN=db.example", "-addext", "subjectAltName=DNS:other.example"];
    let Some(pair) = Pair::make("san", &says) else { return };
    let own = pair.file("crt");
    assert!(accepts(&pair, "host=db.example", "verify-full", Some(&own)).is_err());
    assert_eq!(accepts(&pair, "host=other.example", "verify-full", Some(&own)), Ok(()));
}

/// A directory with a key and a self-signed certificate, removed when dropped.
struct Pair(PathBuf);

impl Pair {
    /// `None` without the command. `arguments` select the key and the contents of the certificate.
    fn make(name: &str, arguments: &[&str]) -> Option<Self> {
        let directory = env::temp_dir().join(format!("pgdyno-tls-{}-{name}", process::id()));
        fs::create_dir_all(&directory).unwrap();
        let pair = Self(directory);
        let mut command = Command::new("openssl");
        command.args(["req", "-new", "-x509", "-nodes", "-days", "2", "-batch"]).args(arguments);
        command.arg("-keyout").arg(pair.file("key")).arg("-out").arg(pair.file("crt"));
        let Ok(status) = command.stderr(Stdio::null()).status() else {
            eprintln!("skipped: there is no openssl command");
            return None;
        };
        assert!(status.success(), "openssl failed");
        Some(pair)
    }

    fn localhost(name: &str) -> Option<Self> {
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-sha256"];
        let says = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"];
        Self::make(name, &[&key[..], &says].concat())
    }

    fn file(&self, extension: &str) -> PathBuf {
        self.0.join(format!("server.{extension}"))
    }

    fn server(&self) -> ServerConnection {
        let certificate = CertificateDer::from_pem_file(self.file("crt")).unwrap();
        let key = PrivateKeyDer::from_pem_file(self.file("key")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
        ServerConnection::new(Arc::new(config)).unwrap()
    }

    /// Hash of the certificate as computed by openssl, in lower-case digits.
    fn fingerprint(&self, hash: &str) -> String {
        let mut command = Command::new("openssl");
        command.args(["x509", "-noout", "-fingerprint", hash, "-in"]).arg(self.file("crt"));
        let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
        text.trim().rsplit('=').next().unwrap().replace(':', "").to_lowercase()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn begin(conninfo: &str) -> Result<TlsSession, TlsError> {
    let conninfo = Conninfo::parse("test", &[], conninfo, &|_| None, Some("al")).unwrap();
    TlsSession::begin(client_config(&conninfo)?, &conninfo.hosts[0], conninfo.sslmode)
}

/// Transfers bytes both ways until the handshake is complete, in pieces of `size` bytes toward the client.
fn shake_hands(client: &mut TlsSession, server: &mut ServerConnection, size: usize) -> Result<(), TlsError> {
    let (mut to_server, mut plain) = (Vec::new(), Vec::new());
    client.write_pending(&mut to_server)?;
    while client.is_handshaking() || !to_server.is_empty() {
        let mut rest = &to_server[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets().unwrap();
        }
        to_server.clear();
        let mut to_client = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut to_client).unwrap();
        }
        for piece in to_client.chunks(size) {
            client.read_cipher(piece, &mut plain, &mut to_server)?;
        }
    }
    assert!(plain.is_empty());
    Ok(())
}

#[test]
fn data_round_trips_through_tls_in_pieces_of_any_size() {
    use std::io::{Read, Write};
    let Some(pair) = Pair::localhost("data") else { return };
    for size in [1, 7, 1000, 100_000] {
        let mut server = pair.server();
        server.set_buffer_limit(None);
        let mut client = begin("host=localhost sslmode=require").unwrap();
        shake_hands(&mut client, &mut server, size).unwrap();

        let text: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8).collect();
        let mut cipher = Vec::new();
        client.write_plain(&text, &mut cipher).unwrap();
        let (mut rest, mut heard) = (&cipher[..], Vec::new());
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            let count = server.process_new_packets().unwrap().plaintext_bytes_to_read();
            let start = heard.len();
            heard.resize(start + count, 0);
            server.reader().read_exact(&mut heard[start..]).unwrap();
        }
        assert!(heard == text);

        server.writer().write_all(&text).unwrap();
        let (mut cipher, mut plain, mut answer) = (Vec::new(), Vec::new(), Vec::new());
        while server.wants_write() {
            server.write_tls(&mut cipher).unwrap();
        }
        for piece in cipher.chunks(size) {
            client.read_cipher(piece, &mut plain, &mut answer).unwrap();
        }
        assert!(plain == text && answer.is_empty());
    }
}

/// Whether a client with this connection string accepts the certificate of the pair.
fn accepts(pair: &Pair, host: &str, sslmode: &str, roots: Option<&Path>) -> Result<(), String> {
    let roots = roots.map(|path| format!(" sslrootcert={}", path.display())).unwrap_or_default();
    let mut client = begin(&format!("{host} sslmode={sslmode}{roots}")).map_err(|e| e.to_string())?;
    shake_hands(&mut client, &mut pair.server(), 4096).map_err(|e| e.to_string())
}

#[test]
fn certificates_are_verified_according_to_sslmode() {
    let (Some(pair), Some(other)) = (Pair::localhost("mode"), Pair::localhost("other")) else { return };
    let (own, others) = (pair.file("crt"), other.file("crt"));
    let missing = pair.file("missing");
    let table: [(&str, &str, Option<&Path>, Option<&str>); 13] = [
        ("host=localhost", "require", None, None),
        ("host=elsewhere", "prefer", None, None),
        ("host=not_a.name-", "require", None, None),
        ("host=localhost", "require", Some(&missing), None),
        ("host=localhost", "require", Some(&own), None),
        ("host=localhost", "require", Some(&others), Some("certificate was refused")),
        ("host=localhost", "verify-ca", Some(&own), None),
        ("host=elsewhere", "verify-ca", Some(&own), None),
        ("host=elsewhere", "verify-ca", Some(&others), Some("certificate was refused")),
        ("host=localhost", "verify-full", Some(&own), None),
        ("hostaddr=127.0.0.1", "verify-full", Some(&own), None),
        ("host=elsewhere", "verify-full", Some(&own), Some("not valid for name")),
        ("host=localhost", "verify-full", Some(&others), Some("certificate was refused")),
    ];
    for (host, sslmode, roots, expected) in table {
        match (accepts(&pair, host, sslmode, roots), expected) {
            (Ok(()), None) => {}
            (Err(error), Some(part)) if error.contains(part) => {}
            (found, _) => panic!("{host} {sslmode} {roots:?}: {found:?}, not {expected:?}"),
        }
    }
}

#[test]
fn missing_root_certificates_are_an_error_with_the_file_name() {
    let error = begin("host=h sslmode=verify-ca sslrootcert=/no/such.crt").err().unwrap().to_string();
    assert!(error.contains("sslmode=verify-ca needs root certificates in /no/such.crt"), "{error}");
    let error = begin("host=h sslmode=verify-full").err().unwrap().to_string();
    assert!(error.contains("give sslrootcert"), "{error}");
    let error = begin("host=h sslmode=require sslrootcert=/dev/null").err().unwrap().to_string();
    assert!(error.contains("holds no certificate"), "{error}");
}

#[test]
fn the_end_point_hash_is_that_of_the_certificates_signature() {
    let rsa: [&str; 4] = ["-newkey", "rsa:2048", "-subj", "/CN=x"];
    let ec: [&str; 6] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-384", "-subj", "/CN=x"];
    let table = [
        ("rsa256", [&rsa[..], &["-sha256"]].concat(), "-sha256"),
        ("rsa512", [&rsa[..], &["-sha512"]].concat(), "-sha512"),
        ("ec384", [&ec[..], &["-sha384"]].concat(), "-sha384"),
    ];
    for (name, arguments, hash) in table {
        let Some(pair) = Pair::make(name, &arguments) else { return };
        let mut client = begin("host=localhost sslmode=require").unwrap();
        shake_hands(&mut client, &mut pair.server(), 4096).unwrap();
        let found = client.end_point_hash().unwrap();
        assert_eq!(hex(&found), pair.fingerprint(hash), "{name}");
    }
}

#[test]
fn bytes_that_are_not_tls_are_an_error_and_never_plaintext() {
    let mut client = begin("host=localhost sslmode=require").unwrap();
    let (mut plain, mut answer) = (Vec::new(), Vec::new());
    client.write_pending(&mut answer).unwrap();
    let error = client.read_cipher(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I", &mut plain, &mut answer).unwrap_err();
    assert!(matches!(error, TlsError::Tls(_)) && plain.is_empty());
}

proptest! {
    #[test]
    fn no_bytes_instead_of_tls_cause_a_panic(bytes in vec(any::<u8>(), 0..300)) {
        let mut client = begin("host=localhost sslmode=require").unwrap();
        let (mut plain, mut answer) = (Vec::new(), Vec::new());
        let _ = client.read_cipher(&bytes, &mut plain, &mut answer);
        prop_assert!(plain.is_empty());
    }
}
