use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use proptest::collection::vec;
use proptest::prelude::*;

use super::super::SqlState;
use super::super::backend::{ProtocolError, parse_startup};
use super::super::conninfo::Conninfo;
use super::super::startup::{Channel, Session, Startup, StartupError};
use super::scram_server::Exchange;
use super::server_message;

/// A client during startup, and the bytes sent since the last call.
struct Client {
    startup: Startup,
    said: Vec<u8>,
}

impl Client {
    fn new(conninfo: &str, channel: Channel) -> Self {
        let conninfo = Conninfo::parse("test", &[], conninfo, &|_| None, Some("al")).unwrap();
        let mut said = Vec::new();
        let startup = Startup::begin(&conninfo, &conninfo.hosts[0], channel, &mut said).unwrap();
        Self { startup, said }
    }

    /// Handles messages. Returns whether it is ready and the bytes of its response, or its error.
    fn hear(&mut self, messages: &[Vec<u8>]) -> Result<(bool, Vec<u8>), StartupError> {
        self.said.clear();
        let mut ready = false;
        for bytes in messages {
            let (message, _) = parse_startup(bytes)?.unwrap();
            ready = self.startup.on_message(&message, &mut self.said)?;
        }
        Ok((ready, self.said.clone()))
    }
}

fn authentication(kind: u32, data: &[u8]) -> Vec<u8> {
    server_message(b'R', &[&kind.to_be_bytes(), data].concat())
}

fn setting(name: &str, value: &str) -> Vec<u8> {
    server_message(b'S', format!("{name}\0{value}\0").as_bytes())
}

fn error(sqlstate: &str, message: &str) -> Vec<u8> {
    server_message(b'E', format!("SFATAL\0VFATAL\0C{sqlstate}\0M{message}\0\0").as_bytes())
}

fn welcome(version: &str) -> Vec<Vec<u8>> {
    vec![
        authentication(0, &[]),
        setting("server_version", version),
        setting("TimeZone", "UTC"),
        setting("TimeZone", "CET"),
        server_message(b'K', &[0, 0, 0, 7, 0, 0, 0, 9]),
        server_message(b'Z', b"I"),
    ]
}

fn tls() -> Channel {
    Channel::Tls { end_point_hash: Some(b"hash of the certificate".to_vec()) }
}

fn session(version: &str) -> Result<Session, StartupError> {
    let mut client = Client::new("", Channel::Plain);
    client.hear(&welcome(version)).map(|(ready, _)| {
        assert!(ready);
        client.startup.into_session()
    })
}

#[test]
fn the_startup_message_contains_the_connection_parameters() {
    let client = Client::new(
        "user=u dbname=d application_name=a options='-c jit=off' client_encoding=UTF8",
        Channel::Plain,
    );
    let body = b"\0\x03\0\0user\0u\0database\0d\0options\0-c jit=off\0application_name\0a\0client_encoding\0UTF8\0\0";
    assert_eq!(client.said[..4], (body.len() as u32 + 4).to_be_bytes());
    assert_eq!(&client.said[4..], body);
}

#[test]
fn trust_authentication_gives_a_session_with_its_settings() {
    let session = session("17.2 (Debian 17.2-1)").unwrap();
    assert_eq!(session.key, Some((7, 9)));
    assert_eq!(session.parameter("server_version"), Some("17.2 (Debian 17.2-1)"));
    assert_eq!(session.parameter("TimeZone"), Some("CET"));
    assert_eq!(session.parameter("nothing"), None);
}

#[test]
fn servers_before_version_10_are_rejected() {
    for version in ["18beta1", "19devel", "10.23", "", "what"] {
        assert!(session(version).is_ok(), "{version}");
    }
    for old in ["9.6.24", "9.5", "8.4.22"] {
        let error = session(old).unwrap_err();
        assert_eq!(error, StartupError::ServerTooOld { version: old.into(), oldest: 10 });
    }
}

#[test]
fn a_cleartext_password_is_sent_unchanged() {
    let mut client = Client::new("password=pä$$", Channel::Plain);
    let (ready, said) = client.hear(&[authentication(3, &[])]).unwrap();
    assert!(!ready);
    assert_eq!(said, "p\0\0\0\x0apä$$\0".as_bytes());
    assert!(client.hear(&welcome("15.1")).unwrap().0);
}

/// PostgreSQL 15: `select md5(md5('password'
///
/// 'md5_user')::bytea
///
/// '\x2a3d8fe0'::bytea)`, which is `md5(md5(password
///
/// user)
///
/// salt)`.
#[test]
fn an_md5_password_is_hashed_with_user_and_salt() {
    let mut client = Client::new("user=md5_user password=password", Channel::Plain);
    let (_, said) = client.hear(&[authentication(5, &[0x2a, 0x3d, 0x8f, 0xe0])]).unwrap();
    assert_eq!(said, b"p\0\0\0\x28md562af4dd09bbb41884907a838a3233294\0");
    assert!(client.hear(&welcome("15.1")).unwrap().0);
}

const PASSWORD: &str = "pencil";
const OFFERS: &[u8] = b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0";
const UNBOUND_OFFER: &[u8] = b"SCRAM-SHA-256\0\0";

/// Runs the exchange up to the server signature. Returns the client's GS2 header and the exchange.
fn play_scram(client: &mut Client, offers: &[u8]) -> Result<(String, Exchange), StartupError> {
    let (_, first) = client.hear(&[authentication(10, offers)])?;
    // Type byte and length; mechanism and its zero byte; length of the data; data.
    let mechanism_end = 5 + first[5..].iter().position(|&b| b == 0).unwrap();
    let mechanism = String::from_utf8_lossy(&first[5..mechanism_end]).into_owned();
    let data = String::from_utf8(first[mechanism_end + 5..].to_vec()).unwrap();
    let (header, client_first_bare) = data.split_at(data.find("n=,r=").unwrap());
    let header = header.to_owned();
    assert_eq!(mechanism == "SCRAM-SHA-256-PLUS", header.starts_with('p'));

    let nonce = format!("{}server", client_first_bare.strip_prefix("n=,r=").unwrap());
    let server_first = format!("r={nonce},s={},i=4096", BASE64_STANDARD.encode(b"salt of server"));
    let (_, last) = client.hear(&[authentication(11, server_first.as_bytes())])?;
    let last = String::from_utf8(last[5..].to_vec()).unwrap();
    let (without_proof, proof) = last.rsplit_once(",p=").unwrap();
    let exchange = Exchange {
        client_first_bare: client_first_bare.to_owned(),
        server_first,
        client_final_without_proof: without_proof.to_owned(),
    };
    assert_eq!(proof, exchange.client_proof(PASSWORD));
    let bound = without_proof.split(',').next().unwrap().strip_prefix("c=").unwrap();
    let bound = String::from_utf8(BASE64_STANDARD.decode(bound).unwrap()).unwrap();
    let end_point = if header.starts_with('p') { "hash of the certificate" } else { "" };
    assert_eq!(bound, format!("{header}{end_point}"));
    Ok((header, exchange))
}

fn signature(exchange: &Exchange, password: &str) -> Vec<u8> {
    authentication(12, format!("v={}", exchange.server_signature(password)).as_bytes())
}

#[test]
fn scram_uses_channel_binding_if_both_sides_support_it() {
    let table = [
        ("", Channel::Plain, UNBOUND_OFFER, "n,,"),
        ("", tls(), OFFERS, "p=tls-server-end-point,,"),
        ("", tls(), UNBOUND_OFFER, "y,,"),
        ("", Channel::Tls { end_point_hash: None }, OFFERS, "n,,"),
        (" channel_binding=disable", tls(), OFFERS, "n,,"),
        (" channel_binding=require", tls(), OFFERS, "p=tls-server-end-point,,"),
    ];
    for (extra, channel, offers, expected) in table {
        let mut client = Client::new(&format!("password={PASSWORD}{extra}"), channel);
        let (header, exchange) = play_scram(&mut client, offers).unwrap();
        assert_eq!(header, expected);
        client.hear(&[signature(&exchange, PASSWORD)]).unwrap();
        assert!(client.hear(&welcome("15.1")).unwrap().0);
    }
}

#[test]
fn a_server_without_a_valid_signature_is_rejected() {
    let begun = || {
        let mut client = Client::new(&format!("password={PASSWORD}"), Channel::Plain);
        let (_, exchange) = play_scram(&mut client, UNBOUND_OFFER).unwrap();
        (client, exchange)
    };
    let (mut client, exchange) = begun();
    let wrong = client.hear(&[signature(&exchange, "another password")]);
    assert_eq!(wrong.unwrap_err(), StartupError::ServerNotProven);

    let (mut client, _) = begun();
    assert_eq!(
        client.hear(&[authentication(12, b"e=other-error")]).unwrap_err(),
        StartupError::ServerNotProven
    );

    let (mut client, _) = begun();
    assert_eq!(client.hear(&welcome("15.1")).unwrap_err(), StartupError::ServerNotProven);

    let mut client = Client::new(&format!("password={PASSWORD}"), Channel::Plain);
    client.hear(&[authentication(10, UNBOUND_OFFER)]).unwrap();
    assert_eq!(client.hear(&welcome("15.1")).unwrap_err(), StartupError::ServerNotProven);
}

#[test]
fn a_malformed_or_too_expensive_challenge_is_rejected() {
    for challenge in ["", "r=x", "r=other,s=c2FsdA==,i=4096", "x"] {
        let mut client = Client::new(&format!("password={PASSWORD}"), Channel::Plain);
        client.hear(&[authentication(10, UNBOUND_OFFER)]).unwrap();
        let error = client.hear(&[authentication(11, challenge.as_bytes())]).unwrap_err();
        assert_eq!(error, ProtocolError::Malformed { message: "SCRAM challenge" }.into());
    }
    let mut client = Client::new(&format!("password={PASSWORD}"), Channel::Plain);
    let (_, first) = client.hear(&[authentication(10, UNBOUND_OFFER)]).unwrap();
    let nonce = String::from_utf8_lossy(&first).split("r=").nth(1).unwrap().to_owned();
    let costly = format!("r={nonce}x,s=c2FsdA==,i=4000000000");
    let error = client.hear(&[authentication(11, costly.as_bytes())]).unwrap_err();
    assert_eq!(error, ProtocolError::Malformed { message: "SCRAM challenge" }.into());
}

#[test]
fn required_channel_binding_accepts_nothing_weaker() {
    let table = [
        (Channel::Plain, vec![authentication(10, UNBOUND_OFFER)], "SCRAM-SHA-256"),
        (Channel::Plain, vec![authentication(10, OFFERS)], "SCRAM-SHA-256-PLUS, SCRAM-SHA-256"),
        (tls(), vec![authentication(10, UNBOUND_OFFER)], "SCRAM-SHA-256"),
        (tls(), vec![authentication(3, &[])], "a bare password"),
        (tls(), vec![authentication(5, &[1, 2, 3, 4])], "a bare password"),
        (tls(), welcome("15.1"), "no proof bound to its certificate"),
    ];
    for (channel, messages, method) in table {
        let mut client = Client::new(&format!("password={PASSWORD} channel_binding=require"), channel);
        let error = client.hear(&messages).unwrap_err();
        assert_eq!(error, StartupError::NotBound { method: method.into() });
        assert!(client.said.is_empty(), "it must not have said anything");
    }
}

#[test]
fn a_rejection_contains_a_remedy_and_the_sqlstate() {
    let table = [
        ("28P01", "password authentication failed", "refused user \"al\": wrong password"),
        ("3D000", "database \"d\" does not exist", "database \"d\" does not exist on this server"),
        ("28000", "no pg_hba.conf entry", "refused the connection: no pg_hba.conf entry (SQLSTATE 28000)"),
        ("53300", "too many clients", "refused the connection: too many clients (SQLSTATE 53300)"),
        ("57P03", "starting up", "refused the connection: starting up (SQLSTATE 57P03)"),
    ];
    for (sqlstate, message, expected) in table {
        let mut client = Client::new("dbname=d password=secret", Channel::Plain);
        client.hear(&[authentication(3, &[])]).unwrap();
        let refused = client.hear(&[error(sqlstate, message)]).unwrap_err();
        assert!(refused.to_string().contains(expected), "{refused}");
        assert!(!refused.to_string().contains("secret"));
        assert_eq!(refused.sqlstate(), SqlState::from_bytes(sqlstate.as_bytes()));
    }
}

#[test]
fn a_missing_password_is_an_error_with_a_remedy() {
    for demand in [authentication(3, &[]), authentication(5, &[0; 4]), authentication(10, UNBOUND_OFFER)] {
        let error = Client::new("", Channel::Plain).hear(&[demand]).unwrap_err().to_string();
        assert!(error.contains("requires a password for user \"al\": give password, PGPASSWORD"), "{error}");
    }
}

#[test]
fn an_unsupported_authentication_method_is_named() {
    let table = [
        (authentication(7, &[]), "GSSAPI"),
        (authentication(9, &[]), "SSPI"),
        (authentication(2, &[]), "Kerberos 5"),
        (authentication(99, &[]), "number 99"),
        (authentication(10, b"OAUTHBEARER\0\0"), "OAUTHBEARER"),
    ];
    for (demand, method) in table {
        let error = Client::new("password=x", Channel::Plain).hear(&[demand]).unwrap_err();
        assert_eq!(error, StartupError::UnsupportedAuthentication { method: method.into() });
    }
}

#[test]
fn messages_out_of_order_are_protocol_violations() {
    let unasked = [
        vec![server_message(b'Z', b"I")],
        vec![setting("a", "b")],
        vec![authentication(12, b"v=")],
        vec![authentication(11, b"")],
        vec![authentication(3, &[]), authentication(3, &[])],
        vec![authentication(0, &[]), authentication(3, &[])],
        vec![authentication(0, &[]), server_message(b'D', &[0, 0])],
        vec![server_message(b'v', &[0, 3, 0, 0, 0, 0, 0, 0])],
    ];
    for messages in unasked {
        let error = Client::new("password=x", Channel::Plain).hear(&messages).unwrap_err();
        assert!(matches!(error, StartupError::Protocol(ProtocolError::Unexpected { .. })), "{error}");
    }
}

#[test]
fn a_server_that_sends_endless_messages_is_disconnected() {
    let mut messages = vec![authentication(0, &[])];
    messages.extend((0..1000).map(|i| setting(&format!("s{i}"), "x")));
    let error = Client::new("", Channel::Plain).hear(&messages).unwrap_err();
    assert!(matches!(error, StartupError::EndlessStartup { .. }));
}

#[test]
fn notices_during_startup_are_skipped() {
    let notice = server_message(b'N', b"VWARNING\0C01000\0Mx\0\0");
    let mut client = Client::new("", Channel::Plain);
    client.hear(&[notice]).unwrap();
    assert!(client.hear(&welcome("15.1")).unwrap().0);
}

/// Result of each `target_session_attrs` with a standby, or with sessions that are read-only by default.
const WISHES: [(&str, [Result<(), &str>; 3]); 6] = [
    ("any", [Ok(()), Ok(()), Ok(())]),
    ("read-write", [Ok(()), Err("session is read-only"), Err("session is read-only")]),
    ("read-only", [Err("session is not read-only"), Ok(()), Ok(())]),
    ("primary", [Ok(()), Err("server is in hot standby mode"), Ok(())]),
    ("standby", [Err(NO_STANDBY), Ok(()), Err(NO_STANDBY)]),
    ("prefer-standby", [Err(NO_STANDBY), Ok(()), Err(NO_STANDBY)]),
];
const NO_STANDBY: &str = "server is not in hot standby mode";

fn heard(result: Result<(bool, Vec<u8>), StartupError>) -> Result<(), &'static str> {
    match result {
        Ok((ready, _)) => {
            assert!(ready);
            Ok(())
        }
        Err(StartupError::WrongSessionAttrs { found }) => Err(found),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn target_session_attrs_is_checked_from_reported_settings() {
    let servers = [("off", "off"), ("on", "off"), ("off", "on")];
    for (wish, outcomes) in WISHES {
        for ((standby, read_only), expected) in servers.into_iter().zip(outcomes) {
            let mut messages = welcome("17.2");
            let ready = messages.pop().unwrap();
            messages.push(setting("in_hot_standby", standby));
            messages.extend([setting("default_transaction_read_only", read_only), ready]);
            let mut client = Client::new(&format!("target_session_attrs={wish}"), Channel::Plain);
            assert_eq!(heard(client.hear(&messages)), expected, "{wish}");
        }
    }
}

#[test]
fn target_session_attrs_is_queried_from_old_servers() {
    // transaction_read_only and pg_is_in_recovery() for the servers of the other test.
    let servers = [("off", "f"), ("on", "t"), ("on", "f")];
    for (wish, outcomes) in WISHES.into_iter().skip(1) {
        for ((read_only, recovers), expected) in servers.into_iter().zip(outcomes) {
            let mut client = Client::new(&format!("target_session_attrs={wish}"), Channel::Plain);
            let (ready, said) = client.hear(&welcome("12.3")).unwrap();
            let (question, answer) = match wish {
                "read-write" | "read-only" => ("SHOW transaction_read_only", read_only),
                _ => ("SELECT pg_catalog.pg_is_in_recovery()", recovers),
            };
            assert!(!ready && said[5..said.len() - 1] == *question.as_bytes(), "{}", said.escape_ascii());
            let row = [&[0, 1, 0, 0, 0, answer.len() as u8], answer.as_bytes()].concat();
            let messages = [
                server_message(b'T', &[0, 0]),
                server_message(b'D', &row),
                server_message(b'C', b"SHOW\0"),
                server_message(b'Z', b"I"),
            ];
            assert_eq!(heard(client.hear(&messages)), expected, "{wish}");
        }
    }
}

/// Messages of a hostile server: a valid form with any authentication request and any data.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let data =
        prop_oneof![vec(any::<u8>(), 0..30), Just(UNBOUND_OFFER.to_vec()), Just(vec![0; 4]), Just(vec![])];
    let kind = prop_oneof![0..13u32, any::<u32>()];
    prop_oneof![
        (kind, data).prop_map(|(kind, data)| authentication(kind, &data)),
        Just(setting("server_version", "99999999999.1")),
        "[0-9.]{0,12}".prop_map(|version| setting("server_version", &version)),
        Just(server_message(b'Z', b"I")),
        Just(server_message(b'D', &[0, 0])),
    ]
}

proptest! {
    #[test]
    fn no_server_can_cause_a_panic(messages in vec(hostile(), 0..9), write in any::<bool>()) {
        let attrs = if write { "target_session_attrs=read-write" } else { "" };
        let _ = Client::new(&format!("password=x {attrs}"), tls()).hear(&messages);
    }
}
