//! Messages of the client: functions that append one message each to a buffer.
//!
//! A function that fails leaves the buffer unchanged. Nothing allocates except the growth of the buffer.

mod parameter;

pub use parameter::{Cents, Decimal, Element, Parameter, write_int};

const PROTOCOL_3_0: i32 = 0x0003_0000;
const SSL_REQUEST: i32 = 80_877_103;
const CANCEL_REQUEST: i32 = 80_877_102;

/// Format codes of Bind and COPY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// As SQL text.
    Text,
    /// In the format of the type's binary send function.
    Binary,
}

/// StartupMessage: `parameters` are pairs such as `("user", "alice")`.
pub fn startup<'a>(
    out: &mut Vec<u8>,
    parameters: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<(), EncodeError> {
    framed(out, &[0; 4], "the start-up message", |out| {
        out.extend_from_slice(&PROTOCOL_3_0.to_be_bytes());
        for (name, value) in parameters {
            cstring(out, name, "the name of a start-up parameter")?;
            cstring(out, value, "the value of a start-up parameter")?;
        }
        out.push(0);
        Ok(())
    })
}

/// SSLRequest. The response is one byte, see [`super::tls`].
pub fn ssl_request(out: &mut Vec<u8>) {
    out.extend_from_slice(&8i32.to_be_bytes());
    out.extend_from_slice(&SSL_REQUEST.to_be_bytes());
}

/// CancelRequest, on a separate connection. The key is that of BackendKeyData.
pub fn cancel_request(out: &mut Vec<u8>, process_id: i32, secret_key: i32) {
    out.extend_from_slice(&16i32.to_be_bytes());
    out.extend_from_slice(&CANCEL_REQUEST.to_be_bytes());
    out.extend_from_slice(&process_id.to_be_bytes());
    out.extend_from_slice(&secret_key.to_be_bytes());
}

/// PasswordMessage with a cleartext or MD5-hashed password.
pub fn password(out: &mut Vec<u8>, password: &[u8]) -> Result<(), EncodeError> {
    message(out, b'p', "the password", |out| cstring_bytes(out, password, "the password"))
}

/// SASLInitialResponse.
pub fn sasl_initial_response(out: &mut Vec<u8>, mechanism: &str, data: &[u8]) -> Result<(), EncodeError> {
    message(out, b'p', "the SASL response", |out| {
        cstring(out, mechanism, "the SASL mechanism")?;
        length(out, data.len(), "the SASL response")?;
        out.extend_from_slice(data);
        Ok(())
    })
}

/// SASLResponse.
pub fn sasl_response(out: &mut Vec<u8>, data: &[u8]) -> Result<(), EncodeError> {
    message(out, b'p', "the SASL response", |out| {
        out.extend_from_slice(data);
        Ok(())
    })
}

/// Query: the simple protocol. Statements are separated by semicolons.
pub fn query(out: &mut Vec<u8>, sql: &str) -> Result<(), EncodeError> {
    message(out, b'Q', "the query", |out| cstring(out, sql, "the query"))
}

/// Query whose text is appended in place by `append`, in the encoding of the session.
#[inline]
pub fn query_in_place(out: &mut Vec<u8>, append: impl FnOnce(&mut Vec<u8>)) -> Result<(), EncodeError> {
    message(out, b'Q', "the query", |out| {
        let start = out.len();
        append(out);
        if out[start..].contains(&0) {
            return Err(EncodeError::ZeroByte { what: "the query" });
        }
        out.push(0);
        Ok(())
    })
}

/// Parse: prepares `sql` under `name` ("" is the unnamed statement). `types` are parameter type OIDs that the
/// server should not infer. The text is in the encoding of the session.
pub fn parse(out: &mut Vec<u8>, name: &str, sql: impl AsRef<[u8]>, types: &[u32]) -> Result<(), EncodeError> {
    message(out, b'P', "the statement", |out| {
        cstring(out, name, "the statement's name")?;
        cstring_bytes(out, sql.as_ref(), "the statement")?;
        count(out, types.len(), "the list of types")?;
        for oid in types {
            out.extend_from_slice(&oid.to_be_bytes());
        }
        Ok(())
    })
}

/// Bind of the unnamed portal, with binary parameters and results.
///
/// The types of parameters are those of the prepared statement: with an `i32` for a `bigint` the server fails.
pub fn bind(out: &mut Vec<u8>, statement: &str, parameters: &[&dyn Parameter]) -> Result<(), EncodeError> {
    message(out, b'B', "the parameters", |out| {
        out.push(0);
        cstring(out, statement, "the statement's name")?;
        out.extend_from_slice(&[0, 1, 0, 1]);
        count(out, parameters.len(), "the list of parameters")?;
        for parameter in parameters {
            sized(out, |out| parameter.append(out))?;
        }
        out.extend_from_slice(&[0, 1, 0, 1]);
        Ok(())
    })
}

/// Bind of the unnamed portal, with parameters as text and all results in one format.
///
/// `append` writes the parameter of an index. It returns `false` and appends nothing for NULL.
#[inline]
pub fn bind_text(
    out: &mut Vec<u8>,
    statement: &str,
    parameters: usize,
    results: Format,
    mut append: impl FnMut(&mut Vec<u8>, usize) -> bool,
) -> Result<(), EncodeError> {
    message(out, b'B', "the parameters", |out| {
        out.push(0);
        cstring(out, statement, "the statement's name")?;
        out.extend_from_slice(&[0, 0]);
        count(out, parameters, "the list of parameters")?;
        for parameter in 0..parameters {
            sized(out, |out| append(out, parameter))?;
        }
        match results {
            Format::Text => out.extend_from_slice(&[0, 0]),
            Format::Binary => out.extend_from_slice(&[0, 1, 0, 1]),
        }
        Ok(())
    })
}

/// Describe of the unnamed portal.
pub fn describe(out: &mut Vec<u8>) {
    out.extend_from_slice(b"D\0\0\0\x06P\0");
}

/// Execute of the unnamed portal, for all rows.
#[inline]
pub fn execute(out: &mut Vec<u8>) {
    out.extend_from_slice(b"E\0\0\0\x09\0\0\0\0\0");
}

/// Sync: ends a batch. The server responds with ReadyForQuery.
#[inline]
pub fn sync(out: &mut Vec<u8>) {
    out.extend_from_slice(b"S\0\0\0\x04");
}

/// Terminate: closes the session.
pub fn terminate(out: &mut Vec<u8>) {
    out.extend_from_slice(b"X\0\0\0\x04");
}

/// Position of a CopyData message that is being written.
#[must_use = "the message has no length until copy_data_end"]
#[derive(Debug)]
pub struct CopyData {
    length_at: usize,
}

/// Begins a CopyData message: the caller appends its data to `out`, then calls [`copy_data_end`].
pub fn copy_data_begin(out: &mut Vec<u8>) -> CopyData {
    out.extend_from_slice(b"d\0\0\0\0");
    CopyData { length_at: out.len() - 4 }
}

/// Ends the message started by `begun`. All data appended since is its content.
pub fn copy_data_end(out: &mut [u8], begun: &CopyData) -> Result<(), EncodeError> {
    patch_length(out, begun.length_at, "the data of a COPY")
}

/// CopyDone.
pub fn copy_done(out: &mut Vec<u8>) {
    out.extend_from_slice(b"c\0\0\0\x04");
}

/// CopyFail: the server ends the COPY with an error that quotes `reason`.
pub fn copy_fail(out: &mut Vec<u8>, reason: &str) -> Result<(), EncodeError> {
    message(out, b'f', "the reason", |out| cstring(out, reason, "the reason"))
}

/// Appends a message with a type byte. On an error the buffer is unchanged.
#[inline]
fn message(
    out: &mut Vec<u8>,
    tag: u8,
    what: &'static str,
    append: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    framed(out, &[tag, 0, 0, 0, 0], what, append)
}

/// Appends `head`, which ends with the length, and what `append` writes. On an error the buffer is unchanged.
#[inline]
fn framed(
    out: &mut Vec<u8>,
    head: &[u8],
    what: &'static str,
    append: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let start = out.len();
    out.extend_from_slice(head);
    let length_at = out.len() - 4;
    append(out).and_then(|()| patch_length(out, length_at, what)).inspect_err(|_| out.truncate(start))
}

/// Writes the length from `at` to the end, including itself, at `at`.
#[inline]
fn patch_length(out: &mut [u8], at: usize, what: &'static str) -> Result<(), EncodeError> {
    let length = i32::try_from(out.len() - at).map_err(|_| EncodeError::TooLong { what })?;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// Appends a value after its length, which excludes itself and is −1 for NULL.
#[inline]
fn sized(out: &mut Vec<u8>, append: impl FnOnce(&mut Vec<u8>) -> bool) -> Result<(), EncodeError> {
    let at = out.len();
    out.extend_from_slice(&(-1i32).to_be_bytes());
    if append(out) {
        let length =
            i32::try_from(out.len() - at - 4).map_err(|_| EncodeError::TooLong { what: "a parameter" })?;
        out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    }
    Ok(())
}

fn length(out: &mut Vec<u8>, bytes: usize, what: &'static str) -> Result<(), EncodeError> {
    let bytes = i32::try_from(bytes).map_err(|_| EncodeError::TooLong { what })?;
    out.extend_from_slice(&bytes.to_be_bytes());
    Ok(())
}

/// Appends a 16-bit count, which the server reads as unsigned.
fn count(out: &mut Vec<u8>, n: usize, what: &'static str) -> Result<(), EncodeError> {
    let n = u16::try_from(n).map_err(|_| EncodeError::TooLong { what })?;
    out.extend_from_slice(&n.to_be_bytes());
    Ok(())
}

fn cstring(out: &mut Vec<u8>, text: &str, what: &'static str) -> Result<(), EncodeError> {
    cstring_bytes(out, text.as_bytes(), what)
}

#[inline]
fn cstring_bytes(out: &mut Vec<u8>, text: &[u8], what: &'static str) -> Result<(), EncodeError> {
    if text.contains(&0) {
        return Err(EncodeError::ZeroByte { what });
    }
    out.extend_from_slice(text);
    out.push(0);
    Ok(())
}

/// A message that cannot be encoded.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EncodeError {
    /// A string contains a zero byte, which the protocol does not allow.
    #[error("{what} holds a zero byte, which PostgreSQL cannot take")]
    ZeroByte {
        /// Name of the string.
        what: &'static str,
    },
    /// A message exceeds the maximum length of the protocol.
    #[error("{what} is too long for one message of the protocol")]
    TooLong {
        /// Name of the part that is too long.
        what: &'static str,
    },
}
