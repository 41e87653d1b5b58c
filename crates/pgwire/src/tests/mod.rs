//! Tests of the wire layer, one file per module.

#![allow(clippy::unwrap_used, clippy::panic)]

mod backend;
mod conninfo;
mod encoding;
mod passfile;
mod scram_server;
mod startup;
mod tls;

/// A server's message: type byte, length, body.
fn server_message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// Hexadecimal digits, as by PostgreSQL's `encode(…, 'hex')`.
fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}
