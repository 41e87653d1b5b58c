//! Server side of SCRAM-SHA-256, written from RFC 5802 and verified with the example of RFC 7677. It is the
//! oracle for tests of the client side.

use std::num::NonZeroU32;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::{digest, hmac, pbkdf2};

/// Messages of an exchange, from which the proofs follow.
pub struct Exchange {
    pub client_first_bare: String,
    pub server_first: String,
    pub client_final_without_proof: String,
}

impl Exchange {
    fn message(&self) -> String {
        format!("{},{},{}", self.client_first_bare, self.server_first, self.client_final_without_proof)
    }

    /// Client proof in base64.
    pub fn client_proof(&self, password: &str) -> String {
        let client_key = hmac_sha256(&self.salted(password), b"Client Key");
        let stored_key = digest::digest(&digest::SHA256, &client_key);
        let signature = hmac_sha256(stored_key.as_ref(), self.message().as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(k, s)| k ^ s).collect();
        BASE64_STANDARD.encode(proof)
    }

    /// Server signature in base64.
    pub fn server_signature(&self, password: &str) -> String {
        let server_key = hmac_sha256(&self.salted(password), b"Server Key");
        BASE64_STANDARD.encode(hmac_sha256(&server_key, self.message().as_bytes()))
    }

    fn salted(&self, password: &str) -> [u8; 32] {
        let field = |name: &str| {
            let found = self.server_first.split(',').find_map(|f| f.strip_prefix(name));
            found.unwrap().strip_prefix('=').unwrap().to_owned()
        };
        let salt = BASE64_STANDARD.decode(field("s")).unwrap();
        let iterations = NonZeroU32::new(field("i").parse().unwrap()).unwrap();
        let mut salted = [0; 32];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, &salt, password.as_bytes(), &mut salted);
        salted
    }
}

fn hmac_sha256(key: &[u8], data: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data).as_ref().to_vec()
}

#[test]
fn the_oracle_computes_the_example_of_rfc_7677() {
    let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    let exchange = Exchange {
        client_first_bare: "n=user,r=rOprNGfwEbeRWgbNEkqO".into(),
        server_first: format!("r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"),
        client_final_without_proof: format!("c=biws,r={nonce}"),
    };
    assert_eq!(exchange.client_proof("pencil"), "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
    assert_eq!(exchange.server_signature("pencil"), "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
}
