//! Statements on a connection, in the protocol that sysbench's PostgreSQL driver uses: the simple one for queries, named
//! statements with parameters as text for prepared ones.

use std::io::Write as _;

use mlua::Value;

use super::counts::Class;
use super::lua::Rows;
use super::random::Xoroshiro;
use pgwire::backend::Message;
use pgwire::frontend::{self, Format};
use reactor::{Connection, Error, Seen};

const INT8: u32 = 20;
const FLOAT8: u32 = 701;
const VARCHAR: u32 = 1043;

/// What a statement returned.
#[derive(Debug, Default)]
pub struct Answer {
    /// Rows returned, or rows changed.
    pub rows: u64,
    /// Columns of the rows; none without rows.
    pub columns: Option<u32>,
    /// The rows, where they are kept.
    pub kept: Option<Rows>,
    /// What it was.
    pub class: Option<Class>,
}

/// A prepared statement of a connection.
#[derive(Clone, Debug)]
pub struct Prepared {
    name: String,
    /// How many parameters it has.
    parameters: usize,
    /// The columns that it returns, if it returns rows and has been executed.
    columns: Option<u32>,
}

/// Puts SQL for the simple protocol where [`answer`] sends it from.
pub fn send_query(connection: &mut Connection, sql: &[u8]) -> Result<(), Error> {
    Ok(frontend::query_in_place(connection.out(), |out| out.extend_from_slice(sql))?)
}

/// Sends what waits to be sent, and reads the answer.
pub async fn answer(connection: &mut Connection, keep: bool) -> Result<Answer, Error> {
    connection.flush().await?;
    read(connection, keep).await
}

/// Prepares a statement. `types` are the OIDs of its parameters.
pub async fn prepare(
    connection: &mut Connection,
    name: String,
    sql: &[u8],
    types: &[u32],
) -> Result<Prepared, Error> {
    connection.prepare(&name, numbered(sql), types).await?;
    Ok(Prepared { name, parameters: types.len(), columns: None })
}

/// The OID of a parameter's type, by sysbench's number (`sysbench.sql.type`); 0: the server infers it.
pub fn type_oid(number: u32) -> u32 {
    match number {
        1..=4 => INT8,
        5..=6 => FLOAT8,
        11 | 12 => VARCHAR,
        _ => 0,
    }
}

/// The name of a statement, for which sysbench draws two of the client's random numbers.
pub fn statement_name(bits: &mut Xoroshiro) -> String {
    let [second, first] = [(); 2].map(|()| bits.next_u64() as i32);
    format!("sbstmt{first}{second}")
}

/// The text with `$1`, `$2`, … for its question marks, except those in quotes.
fn numbered(sql: &[u8]) -> Vec<u8> {
    let (mut text, mut parameters, mut quote) = (Vec::with_capacity(sql.len() + 16), 0, None);
    for &byte in sql {
        match (byte, quote) {
            (b'?', None) => {
                parameters += 1;
                // Writing to a Vec cannot fail.
                let _ = write!(text, "${parameters}");
                continue;
            }
            (b'\'' | b'"', None) => quote = Some(byte),
            (byte, Some(open)) if byte == open => quote = None,
            _ => {}
        }
        text.push(byte);
    }
    text
}

/// Executes a prepared statement with the value of each of its parameters.
#[inline]
pub async fn execute<'a>(
    connection: &mut Connection,
    prepared: &mut Prepared,
    value: impl Fn(usize) -> &'a Value,
    keep: bool,
) -> Result<Answer, Error> {
    let out = connection.out();
    // sysbench asks for binary results, whatever their types.
    frontend::bind_text(out, &prepared.name, prepared.parameters, Format::Binary, |out, place| {
        append(out, value(place))
    })?;
    frontend::describe(out);
    frontend::execute(out);
    frontend::sync(out);
    connection.flush().await?;
    if let (Some(columns), false) = (prepared.columns, keep) {
        // Its columns are known from its first execution.
        let mut seen = Seen::default();
        connection.read_over(&mut seen).await?;
        return Ok(Answer { rows: seen.rows, columns: Some(columns), kept: None, class: Some(Class::Read) });
    }
    let answer = read(connection, keep).await?;
    prepared.columns = answer.columns;
    Ok(answer)
}

/// Appends a parameter as text; `false` for NULL.
#[inline]
fn append(out: &mut Vec<u8>, value: &Value) -> bool {
    // Writing to a Vec cannot fail.
    match value {
        Value::Integer(number) => frontend::write_int(out, *number),
        Value::Number(number) => drop(write!(out, "{number}")),
        Value::String(text) => out.extend_from_slice(&text.as_bytes()),
        _ => return false,
    }
    true
}

/// Reads an answer to its end. Of several statements, the last one that returned rows or the last one counts.
async fn read(connection: &mut Connection, keep: bool) -> Result<Answer, Error> {
    let mut answer = Answer::default();
    let mut rows = keep.then(Rows::default);
    loop {
        match connection.next().await? {
            Message::RowDescription(fields) => {
                answer.columns = Some(fields.names().count() as u32);
                answer.class = Some(Class::Read);
                answer.rows = 0;
                rows = keep.then(Rows::default);
            }
            Message::DataRow(row) => {
                answer.rows += 1;
                if let Some(rows) = &mut rows {
                    rows.push(&row);
                }
            }
            Message::CommandComplete(tag) if answer.columns.is_none() => {
                answer.rows = tag.rows();
                answer.class = Some(if answer.rows > 0 { Class::Write } else { Class::Other });
            }
            Message::EmptyQueryResponse => answer.class = Some(Class::Other),
            Message::ReadyForQuery(_) => break,
            _ => {}
        }
    }
    answer.kept = rows.filter(|_| answer.columns.is_some());
    Ok(answer)
}

/// After an error: reads the answer to its end, and rolls back if `rolls_back`, even outside a transaction, as sysbench does. The session is
/// ready for the next statement.
pub async fn recover(connection: &mut Connection, rolls_back: bool) -> Result<(), Error> {
    match connection.answer().await {
        Err(error) if error.is_fatal() => return Err(error),
        _ => {}
    }
    if rolls_back {
        connection.simple("ROLLBACK").await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_marks_become_numbered_parameters_outside_of_quotes() {
        let cases = [
            ("SELECT ?, ?", "SELECT $1, $2"),
            ("SELECT '?', \"?\", ?", "SELECT '?', \"?\", $1"),
            ("SELECT 'it''s ?' WHERE a=?", "SELECT 'it''s ?' WHERE a=$1"),
            ("COMMIT", "COMMIT"),
        ];
        for (sql, expected) in cases {
            assert_eq!(numbered(sql.as_bytes()), expected.as_bytes(), "{sql}");
        }
    }
}
