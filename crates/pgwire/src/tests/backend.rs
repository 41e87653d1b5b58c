use proptest::collection::vec;
use proptest::prelude::*;

use super::super::SqlState;
use super::super::backend::{
    Authentication, MESSAGE_BYTES_MAX, Message, ProtocolError, Row, STARTUP_MESSAGE_BYTES_MAX,
    TransactionStatus, parse, parse_startup,
};
use super::server_message;

fn only(bytes: &[u8]) -> Message<'_> {
    let (message, length) = parse(bytes).unwrap().unwrap();
    assert_eq!(length, bytes.len());
    message
}

fn row(values: &[Option<&[u8]>]) -> Vec<u8> {
    let mut body = (values.len() as u16).to_be_bytes().to_vec();
    for value in values {
        body.extend_from_slice(&value.map_or(-1, |v| v.len() as i32).to_be_bytes());
        body.extend_from_slice(value.unwrap_or_default());
    }
    server_message(b'D', &body)
}

fn with_row(values: &[Option<&[u8]>], check: impl FnOnce(Row<'_>)) {
    let bytes = row(values);
    let Message::DataRow(row) = only(&bytes) else { panic!("not a row") };
    check(row);
}

#[test]
fn a_row_returns_its_values_by_type() {
    let numeric = [0, 2, 0, 0, 0x40, 0, 0, 2, 0, 12, 0x0d, 0x48];
    let values = [Some(&[0, 0, 1, 0][..]), Some("größe".as_bytes()), Some(&numeric), None];
    with_row(&values, |row| {
        assert_eq!((row.column_count(), row.columns().count()), (4, 4));
        assert_eq!((row.i32(0), row.text(1), row.cents(2)), (Ok(256), Ok("größe"), Ok(-1234)));
        assert_eq!(row.get(3), Ok(None));
    });
}

#[test]
fn a_wrong_column_is_an_error_and_never_another_value() {
    with_row(&[Some(&[0, 1]), None, Some(&[0xff])], |row| {
        for column in [0, 1] {
            assert_eq!(row.i32(column), Err(ProtocolError::ColumnType { column, expected: "integer" }));
        }
        assert_eq!(row.text(1), Err(ProtocolError::ColumnType { column: 1, expected: "text" }));
        assert_eq!(row.text(2), Err(ProtocolError::ColumnType { column: 2, expected: "text" }));
        assert_eq!(row.cents(2), Err(ProtocolError::ColumnType { column: 2, expected: "numeric" }));
        assert_eq!(row.i32(3), Err(ProtocolError::NoColumn { column: 3, columns: 3 }));
    });
}

#[test]
fn a_command_tag_contains_its_number_of_rows() {
    let table: [(&str, u64); 9] = [
        ("INSERT 0 5", 5),
        ("SELECT 12", 12),
        ("UPDATE 0", 0),
        ("COPY 300000", 300_000),
        ("BEGIN", 0),
        ("CREATE TABLE", 0),
        ("", 0),
        ("DELETE 18446744073709551615", u64::MAX),
        ("DELETE 99999999999999999999999", u64::MAX),
    ];
    for (tag, rows) in table {
        let bytes = server_message(b'C', format!("{tag}\0").as_bytes());
        let Message::CommandComplete(found) = only(&bytes) else { panic!("not a tag") };
        assert_eq!(found.rows(), rows, "{tag}");
    }
}

#[test]
fn an_error_returns_the_requested_fields() {
    let body = b"SFEHLER\0VERROR\0C40P01\0Mdeadlock detected\0Dwho waits\0Hsee log\0Wfunction f\0\0";
    let bytes = server_message(b'E', body);
    let Message::ErrorResponse(fields) = only(&bytes) else { panic!("not an error") };
    let kept = fields.to_owned();
    assert_eq!((&kept.severity[..], kept.sqlstate), ("ERROR", SqlState::DEADLOCK_DETECTED));
    assert!(kept.sqlstate.is_retryable());
    assert_eq!((&kept.message[..], kept.detail.as_deref()), ("deadlock detected", Some("who waits")));
    assert_eq!((kept.hint.as_deref(), kept.context.as_deref()), (Some("see log"), Some("function f")));
    assert_eq!(fields.get(b'n'), None);
    assert_eq!(fields.get(0), None);
    assert_eq!(kept.to_string(), "deadlock detected; who waits; see log (SQLSTATE 40P01)");
}

#[test]
fn a_server_message_of_several_lines_becomes_one_line_without_control_characters() {
    let bytes = server_message(b'E', b"C42601\0Mone\ntwo\x1b[2J\xff\0\0");
    let Message::ErrorResponse(fields) = only(&bytes) else { panic!("not an error") };
    let line = fields.to_owned().to_string();
    assert!(!line.chars().any(char::is_control), "{line:?}");
}

#[test]
fn an_error_of_megabytes_is_truncated_with_the_omitted_size() {
    let of = |letters: usize| {
        // Characters of two bytes, so that the limit is both between and within characters.
        let bytes = server_message(b'E', format!("C42601\0Mx{}\0\0", "é".repeat(letters)).as_bytes());
        let Message::ErrorResponse(fields) = only(&bytes) else { panic!("not an error") };
        fields.to_owned()
    };
    let long = of(5_000_000);
    assert!(long.message.len() < 66_000, "{}", long.message.len());
    assert!(long.message.ends_with(" more bytes)"), "{}", &long.message[65_000..]);
    let line = long.to_string();
    assert!(line.len() < 4100 && line.ends_with("more bytes) (SQLSTATE 42601)"), "{line}");
    let whole = of(30_000);
    assert_eq!(whole.message.len(), 60_001, "what a server may well say is kept");
    assert_eq!(of(3).to_string(), "xééé (SQLSTATE 42601)");
}

#[test]
fn an_error_without_a_valid_code_is_counted_as_internal() {
    for body in [&b"Mx\0\0"[..], b"C4000\0\0", b"Cabcde\0\0", b"\0"] {
        let bytes = server_message(b'E', body);
        let Message::ErrorResponse(fields) = only(&bytes) else { panic!("not an error") };
        assert_eq!(fields.sqlstate(), SqlState::UNKNOWN);
    }
}

#[test]
fn every_message_of_a_session_is_read() {
    let field =
        [b"id\0".as_slice(), &[0, 0, 0, 1, 0, 1, 0, 0, 0, 23, 0, 4, 255, 255, 255, 255, 0, 1]].concat();
    let description = [&[0, 1][..], &field].concat();
    let table: [(u8, &[u8], &str); 10] = [
        (b'R', &[0, 0, 0, 0], "Authentication(Ok)"),
        (b'R', &[0, 0, 0, 3], "Authentication(CleartextPassword)"),
        (b'R', &[0, 0, 0, 5, 1, 2, 3, 4], "Authentication(Md5Password { salt: [1, 2, 3, 4] })"),
        (b'R', &[0, 0, 0, 7], "Authentication(Other(7))"),
        (b'K', &[0, 0, 0, 1, 0, 0, 0, 2], "BackendKeyData { process_id: 1, secret_key: 2 }"),
        (b'I', b"", "EmptyQueryResponse"),
        (b'N', b"VWARNING\0C01000\0Mmind\0\0", "NoticeResponse(WARNING 01000: mind)"),
        (b'S', b"a\0b\0", "ParameterStatus { name: [97], value: [98] }"),
        (b'Z', b"T", "ReadyForQuery(Active)"),
        (b'C', b"SELECT 1\0", "CommandComplete(SELECT 1)"),
    ];
    for (tag, body, shown) in table {
        assert_eq!(format!("{:?}", only(&server_message(tag, body))), shown);
    }
    let others: [(u8, &[u8], &str); 12] = [
        (b'1', b"", "ParseComplete"),
        (b'2', b"", "BindComplete"),
        (b'3', b"", "CloseComplete"),
        (b'c', b"", "CopyDone"),
        (b'd', b"x", "CopyData"),
        (b'G', &[1, 0, 1, 0, 1], "CopyInResponse"),
        (b'H', &[0, 0, 0], "CopyOutResponse"),
        (b'n', b"", "NoData"),
        (b's', b"", "PortalSuspended"),
        (b'A', b"\0\0\0\x01c\0p\0", "NotificationResponse"),
        (b'v', &[0, 3, 0, 0, 0, 0, 0, 0], "NegotiateProtocolVersion"),
        (b't', &[0, 1, 0, 0, 0, 23], "ParameterDescription"),
    ];
    for (tag, body, name) in others {
        let bytes = server_message(tag, body);
        assert_eq!((only(&bytes), only(&bytes).name()), (Message::Other(tag), name));
    }
    let bytes = server_message(b'T', &description);
    let Message::RowDescription(fields) = only(&bytes) else { panic!("not a description") };
    assert_eq!(fields.names().collect::<Vec<_>>(), [b"id"]);
}

#[test]
fn sasl_mechanisms_are_found_by_their_whole_name() {
    let bytes = server_message(b'R', b"\0\0\0\x0aSCRAM-SHA-256-PLUS\0OTHER\0\0");
    let Message::Authentication(Authentication::Sasl(mechanisms)) = only(&bytes) else { panic!("not SASL") };
    assert!(mechanisms.has("SCRAM-SHA-256-PLUS") && mechanisms.has("OTHER"));
    assert!(!mechanisms.has("SCRAM-SHA-256"));
    assert_eq!(mechanisms.list(), "SCRAM-SHA-256-PLUS, OTHER");
}

#[test]
fn a_malformed_body_is_an_error_with_the_name_of_the_message() {
    let table: [(u8, &[u8], &str); 18] = [
        (b'Z', b"X", "ReadyForQuery"),
        (b'Z', b"", "ReadyForQuery"),
        (b'Z', b"II", "ReadyForQuery"),
        (b'2', b"x", "BindComplete"),
        (b'C', b"SELECT 1", "CommandComplete"),
        (b'D', &[0, 1], "DataRow"),
        (b'D', &[0, 1, 0, 0, 0, 2, 1], "DataRow"),
        (b'D', &[0, 1, 255, 255, 255, 254], "DataRow"),
        (b'D', &[0, 0, 1], "DataRow"),
        (b'E', b"", "ErrorResponse"),
        (b'E', b"Mno end", "ErrorResponse"),
        (b'E', b"Mno end\0", "ErrorResponse"),
        (b'K', b"\0\0\0\x01", "BackendKeyData"),
        (b'R', b"\0\0", "Authentication"),
        (b'R', b"\0\0\0\x05\x01", "Authentication"),
        (b'R', b"\0\0\0\x0aSCRAM", "Authentication"),
        (b'S', b"a\0b", "ParameterStatus"),
        (b'T', &[0, 1, b'x', 0], "RowDescription"),
    ];
    for (tag, body, message) in table {
        assert_eq!(parse(&server_message(tag, body)), Err(ProtocolError::Malformed { message }));
    }
}

#[test]
fn a_hostile_length_or_type_is_rejected_before_buffering() {
    let length = |tag, length_bytes: u32| [&[tag][..], &length_bytes.to_be_bytes()].concat();
    let refused = |length_bytes, limit_bytes| {
        Err(ProtocolError::MessageLength { tag: b'D', length_bytes, limit_bytes })
    };
    assert_eq!(parse(&length(b'D', 3)), refused(3, MESSAGE_BYTES_MAX));
    assert_eq!(parse(&length(b'D', u32::MAX)), refused(u32::MAX, MESSAGE_BYTES_MAX));
    assert_eq!(
        parse(&length(b'D', MESSAGE_BYTES_MAX + 1)),
        refused(MESSAGE_BYTES_MAX + 1, MESSAGE_BYTES_MAX)
    );
    assert_eq!(parse(&length(b'D', MESSAGE_BYTES_MAX)), Ok(None));
    let (long, limit) = (STARTUP_MESSAGE_BYTES_MAX + 1, STARTUP_MESSAGE_BYTES_MAX);
    assert_eq!(parse_startup(&length(b'D', long)), refused(long, limit));
    assert_eq!(parse(b"HTTP/1.1 400"), refused_http());
    assert_eq!(parse(b"\0"), Err(ProtocolError::UnknownMessage { tag: 0 }));
}

fn refused_http() -> Result<Option<(Message<'static>, usize)>, ProtocolError> {
    let length_bytes = u32::from_be_bytes(*b"TTP/");
    Err(ProtocolError::MessageLength { tag: b'H', length_bytes, limit_bytes: MESSAGE_BYTES_MAX })
}

#[test]
fn ready_for_query_contains_the_transaction_status() {
    let table = [
        (b"I", TransactionStatus::Idle),
        (b"T", TransactionStatus::Active),
        (b"E", TransactionStatus::Failed),
    ];
    for (body, status) in table {
        assert_eq!(only(&server_message(b'Z', body)), Message::ReadyForQuery(status));
    }
}

const TAGS: &[u8] = b"123ACDEGHIKNRSTZcdnstv";

/// A message with a valid frame and an arbitrary body.
fn framed() -> impl Strategy<Value = Vec<u8>> {
    (prop::sample::select(TAGS), vec(any::<u8>(), 0..40)).prop_map(|(tag, body)| server_message(tag, &body))
}

/// A valid message.
fn valid() -> impl Strategy<Value = Vec<u8>> {
    let values = vec(prop::option::of(vec(any::<u8>(), 0..9)), 0..6);
    prop_oneof![
        values.prop_map(|values| row(&values.iter().map(Option::as_deref).collect::<Vec<_>>())),
        any::<u32>().prop_map(|n| server_message(b'C', format!("UPDATE {n}\0").as_bytes())),
        Just(server_message(b'2', b"")),
        Just(server_message(b'Z', b"I")),
        "[a-z]{0,9}".prop_map(|m| server_message(b'E', format!("VERROR\0C40001\0M{m}\0\0").as_bytes())),
        vec(any::<u8>(), 0..50).prop_map(|data| server_message(b'd', &data)),
    ]
}

/// The messages that a connection receives if the bytes arrive in these pieces.
fn receive<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    let (mut buffer, mut seen) = (Vec::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        while let Some((message, length)) = parse(&buffer).unwrap() {
            seen.push(format!("{message:?}"));
            buffer.drain(..length);
        }
    }
    assert!(buffer.is_empty());
    seen
}

proptest! {
    #[test]
    fn parsing_any_bytes_does_not_panic_or_read_past_the_end(bytes in vec(any::<u8>(), 0..200)) {
        if let Ok(Some((message, length))) = parse(&bytes) {
            prop_assert!(length <= bytes.len());
            touch(&message, 0);
        }
    }

    #[test]
    fn parsing_any_body_and_calling_its_accessors_does_not_panic(bytes in framed(), column in 0..70_000usize) {
        match parse(&bytes) {
            Ok(None) => prop_assert!(false, "a whole message was not recognised"),
            Ok(Some((message, length))) => {
                prop_assert_eq!(length, bytes.len());
                touch(&message, column);
            }
            Err(error) => {
                let is_malformed = matches!(error, ProtocolError::Malformed { .. });
                prop_assert!(is_malformed);
            }
        }
    }

    #[test]
    fn the_stream_may_be_split_at_any_position(messages in vec(valid(), 1..8), size in 1..30usize) {
        let stream = messages.concat();
        let whole = receive(std::iter::once(&stream[..]));
        prop_assert_eq!(whole.len(), messages.len());
        prop_assert_eq!(receive(stream.chunks(size)), whole);
    }

    #[test]
    fn a_partial_message_needs_more_bytes(message in valid(), cut in any::<prop::sample::Index>()) {
        let cut = cut.index(message.len());
        prop_assert_eq!(parse(&message[..cut]), Ok(None));
    }

    #[test]
    fn a_row_returns_the_encoded_values(values in vec(prop::option::of(vec(any::<u8>(), 0..9)), 0..9)) {
        let values: Vec<_> = values.iter().map(Option::as_deref).collect();
        with_row(&values, |row| {
            assert_eq!(row.columns().collect::<Vec<_>>(), values);
            for (i, value) in values.iter().enumerate() {
                assert_eq!(row.get(i), Ok(*value));
            }
        });
    }
}

/// Calls every accessor.
fn touch(message: &Message<'_>, column: usize) {
    match message {
        Message::DataRow(row) => {
            let _ = (row.i32(column), row.text(column), row.cents(column), row.columns().count());
        }
        Message::ErrorResponse(fields) | Message::NoticeResponse(fields) => {
            let _ = (fields.to_owned().to_string(), fields.get(0), fields.get(b'M'));
        }
        Message::CommandComplete(tag) => drop(tag.rows()),
        Message::RowDescription(fields) => drop(fields.names().count()),
        Message::Authentication(Authentication::Sasl(mechanisms)) => {
            let _ = (mechanisms.list(), mechanisms.has(""));
        }
        _ => {}
    }
}
