//! Values in both directions: PostgreSQL reads what the driver writes, and the reverse.

use crate::{Clock, Connection, Error, Reactor};
use pgwire::backend::Message;
use pgwire::conninfo::Conninfo;
use pgwire::copy;
use pgwire::frontend::{self, Cents, Decimal, Parameter};

use test_server::Database;

#[test]
fn values_round_trip_through_the_server() {
    let Some(server) = Database::create("values") else { return };
    let conninfo = Conninfo::parse("test", &[], &server.by_socket(), &|_| None, None).unwrap();
    let reactor = Reactor::new(Clock::monotonic()).unwrap();
    let session = async {
        let mut connection = Connection::connect(&reactor, &conninfo).await?;
        connection.simple("set timezone = 'UTC'").await?;
        parameters_round_trip(&mut connection).await?;
        numerics_are_read_in_binary(&mut connection).await?;
        copied_rows_round_trip(&mut connection).await?;
        Ok::<_, Error>(())
    };
    reactor.block_on(session).unwrap().unwrap();
}

async fn parameters_round_trip(connection: &mut Connection) -> Result<(), Error> {
    let table: [(&str, &dyn Parameter, Option<&str>); 13] = [
        ("int2", &-2i16, Some("-2")),
        ("int4", &i32::MIN, Some("-2147483648")),
        ("int8", &i64::MAX, Some("9223372036854775807")),
        ("float8", &0.1f64, Some("0.1")),
        ("bool", &true, Some("true")),
        ("text", &"größe", Some("größe")),
        ("bytea", &&b"\0\x01"[..], Some("\\x0001")),
        ("numeric", &Cents(-123_456), Some("-1234.56")),
        ("numeric", &Cents(i64::MIN), Some("-92233720368547758.08")),
        ("numeric", &Decimal { scaled: 1812, scale: 4 }, Some("0.1812")),
        ("int4[]", &&[1i32, -2, 3][..], Some("{1,-2,3}")),
        ("int2[]", &&[0i16; 0][..], Some("{}")),
        ("int4", &None::<i32>, None),
    ];
    for (sql_type, parameter, expected) in table {
        let out = connection.out();
        frontend::parse(out, "", format!("select $1::{sql_type}::text"), &[])?;
        frontend::bind(out, "", &[parameter])?;
        frontend::execute(out);
        frontend::sync(out);
        connection.flush().await?;
        let mut found = None;
        loop {
            match connection.next().await? {
                Message::DataRow(row) => {
                    found = row.get(0)?.map(|text| String::from_utf8_lossy(text).into_owned());
                }
                Message::ReadyForQuery(_) => break,
                _ => {}
            }
        }
        assert_eq!(found.as_deref(), expected, "{sql_type}");
    }
    Ok(())
}

async fn numerics_are_read_in_binary(connection: &mut Connection) -> Result<(), Error> {
    let out = connection.out();
    let sql =
        "select 1234.56::numeric, 100000000::numeric, -0.07, 92233720368547758.07, 'NaN'::numeric, 0.001";
    frontend::parse(out, "", sql, &[])?;
    frontend::bind(out, "", &[])?;
    frontend::execute(out);
    frontend::sync(out);
    connection.flush().await?;
    let mut rows = 0;
    loop {
        match connection.next().await? {
            Message::DataRow(row) => {
                rows += 1;
                let cents: Vec<_> = (0..6).map(|i| row.cents(i).ok()).collect();
                let expected = [Some(123_456), Some(10_000_000_000), Some(-7), Some(i64::MAX), None, None];
                assert_eq!(cents, expected);
            }
            Message::CommandComplete(tag) => assert_eq!(tag.rows(), 1),
            Message::ReadyForQuery(_) => break,
            _ => {}
        }
    }
    assert_eq!(rows, 1);
    Ok(())
}

async fn copied_rows_round_trip(connection: &mut Connection) -> Result<(), Error> {
    connection
        .simple("create temp table t (a int2, b int4, c int8, d char(4), e numeric(12,2), f timestamptz)")
        .await?;
    frontend::query(connection.out(), "copy t from stdin binary")?;
    connection.flush().await?;
    connection.copy_in_begun().await?;
    let out = connection.out();
    let data = frontend::copy_data_begin(out);
    copy::header(out);
    for scaled in [0, 1, -1, 12_345_678, 999_999_999_999] {
        copy::row(out, 6);
        copy::int2(out, 1);
        copy::int4(out, -2);
        copy::int8(out, 3);
        copy::text(out, b"xy");
        copy::numeric(out, scaled, 2);
        copy::timestamptz(out, 1_000_000);
    }
    copy::row(out, 6);
    (0..6).for_each(|_| copy::null(out));
    copy::trailer(out);
    frontend::copy_data_end(out, &data)?;
    frontend::copy_done(out);
    connection.flush().await?;
    loop {
        match connection.next().await? {
            Message::CommandComplete(tag) => assert_eq!(tag.rows(), 6),
            Message::ReadyForQuery(_) => break,
            _ => {}
        }
    }
    let rows = connection.simple("select e, (a, b, c, d, f)::text from t order by e").await?;
    let numbers: Vec<_> = rows.iter().map(|row| row[0].as_deref()).collect();
    let expected = ["-0.01", "0.00", "0.01", "123456.78", "9999999999.99"].map(Some);
    assert_eq!(numbers, [&expected[..], &[None]].concat());
    assert_eq!(rows[0][1].as_deref(), Some("(1,-2,3,\"xy  \",\"2000-01-01 00:00:01+00\")"));
    Ok(())
}
