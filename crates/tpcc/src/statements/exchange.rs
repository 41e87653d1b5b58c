//! Several statements and their answers, in one round trip each or in one for all.

use pgwire::backend::{Message, ProtocolError, Row};
use pgwire::frontend::{self, EncodeError, Format, Parameter};
use reactor::{Connection, Error};

/// A connection and how it is used.
pub struct Session<'a> {
    pub connection: &'a mut Connection,
    pub pipeline: bool,
    /// The statements' SQL by [`Statement`], if they are sent as text.
    pub texts: Option<&'a [String]>,
}

/// Where statements are written to, and how.
pub struct Outbox<'a> {
    bytes: &'a mut Vec<u8>,
    texts: Option<&'a [String]>,
}

/// The values of a row, in the format of the protocol that brought it.
pub struct Values<'a> {
    row: Row<'a>,
    are_text: bool,
}

impl Session<'_> {
    /// Carries out `count` statements, none of which needs the answer of another one. `send` appends the one of an
    /// index, `read` gets the index and a row of its answer. Leaves at the first error.
    pub async fn exchange(
        &mut self,
        count: usize,
        mut send: impl FnMut(&mut Outbox<'_>, usize) -> Result<(), EncodeError>,
        mut read: impl FnMut(usize, Values<'_>) -> Result<(), ProtocolError>,
    ) -> Result<(), Error> {
        let step = if self.pipeline { count } else { 1 };
        let mut first = 0;
        while first < count {
            let mut outbox = Outbox { bytes: self.connection.out(), texts: self.texts };
            for index in first..first + step {
                send(&mut outbox, index)?;
            }
            if self.texts.is_none() {
                frontend::sync(self.connection.out());
            }
            self.connection.flush().await?;
            self.answers(first, &mut read).await?;
            first += step;
        }
        Ok(())
    }

    async fn answers(
        &mut self,
        first: usize,
        read: &mut impl FnMut(usize, Values<'_>) -> Result<(), ProtocolError>,
    ) -> Result<(), Error> {
        let (mut index, are_text) = (first, self.texts.is_some());
        loop {
            match self.connection.next().await? {
                Message::DataRow(row) => read(index, Values { row, are_text })?,
                Message::CommandComplete(_) => index += 1,
                Message::ReadyForQuery(_) => return Ok(()),
                _ => {}
            }
        }
    }
}

impl<'a> Values<'a> {
    /// An `integer`.
    pub fn i32(&self, column: usize) -> Result<i32, ProtocolError> {
        if !self.are_text {
            return self.row.i32(column);
        }
        let wrong = ProtocolError::ColumnType { column, expected: "integer" };
        self.row.text(column)?.parse().map_err(|_| wrong)
    }

    /// A `numeric` with two decimals, in hundredths.
    pub fn cents(&self, column: usize) -> Result<i64, ProtocolError> {
        if !self.are_text {
            return self.row.cents(column);
        }
        let wrong = ProtocolError::ColumnType { column, expected: "numeric" };
        let (whole, part) = self.row.text(column)?.split_once('.').ok_or(wrong.clone())?;
        if part.len() != 2 {
            return Err(wrong);
        }
        format!("{whole}{part}").parse().map_err(|_| wrong)
    }

    /// A text.
    pub fn text(&self, column: usize) -> Result<&'a str, ProtocolError> {
        self.row.text(column)
    }
}

/// Appends one statement with its parameters: prepared, or as text.
pub fn call(
    out: &mut Outbox<'_>,
    statement: Statement,
    parameters: &[&dyn Parameter],
) -> Result<(), EncodeError> {
    if let Some(texts) = out.texts {
        let text = &texts[statement as usize];
        return frontend::query_in_place(out.bytes, |bytes| append_text(bytes, text, b'1', parameters));
    }
    frontend::bind(out.bytes, "", statement.name(), parameters, Format::Binary)?;
    frontend::execute(out.bytes, "", 0)
}

/// Appends SQL with literals in place of `$` and a digit. `first` is the digit of the first parameter.
pub fn append_text(out: &mut Vec<u8>, sql: &str, first: u8, parameters: &[&dyn Parameter]) {
    let mut parts = sql.split('$');
    out.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let number = part.bytes().next().map_or(0, |digit| usize::from(digit.wrapping_sub(first)));
        if let Some(parameter) = parameters.get(number) {
            parameter.append_literal(out);
        }
        out.extend_from_slice(part.get(1..).unwrap_or_default().as_bytes());
    }
}

/// For statements whose rows are taken in but not looked at.
#[allow(clippy::unnecessary_wraps)] // It takes the place of a reader that can fail.
pub fn ignore(_: usize, _: Values<'_>) -> Result<(), ProtocolError> {
    Ok(())
}

/// What a row had to give and did not: the dataset is damaged, or of another schema.
pub fn missing(what: &str) -> Error {
    Error::Workload(format!("the dataset has no {what}; load it again"))
}

/// Buffers that a terminal keeps, so that none is allocated for a transaction.
#[derive(Default)]
pub struct Scratch {
    /// Customers of one last name.
    pub customers: Vec<i32>,
    /// SQL by [`Statement`], if it is sent as text.
    pub texts: Vec<String>,
}

/// A prepared statement. The discriminant is its index in [`SQL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statement {
    Buyer,
    NextOrderId,
    InsertOrder,
    InsertNewOrder,
    Item,
    TakeStock,
    InsertOrderLine,
    CustomersByName,
    PayCustomer,
    PayDistrict,
    PayWarehouse,
    InsertHistory,
    CustomerBalance,
    LastOrder,
    OrderLines,
    LockDeliveries,
    TakeOldest,
    DeliverOrder,
    DeliverLines,
    ChargeCustomer,
    LowStock,
    Commit,
    Rollback,
    Begin,
}

/// Name on the wire and text, by [`Statement`]; BEGIN, which names the isolation level, is made in [`super::prepare`].
pub const SQL: [(&str, &str); 23] = [
    ("a", include_str!("../sql/statement/buyer.sql")),
    ("b", include_str!("../sql/statement/next_order_id.sql")),
    ("c", include_str!("../sql/statement/insert_order.sql")),
    ("d", include_str!("../sql/statement/insert_new_order.sql")),
    ("e", include_str!("../sql/statement/item.sql")),
    ("f", include_str!("../sql/statement/take_stock.sql")),
    ("g", include_str!("../sql/statement/insert_order_line.sql")),
    ("h", include_str!("../sql/statement/customers_by_name.sql")),
    ("i", include_str!("../sql/statement/pay_customer.sql")),
    ("j", include_str!("../sql/statement/pay_district.sql")),
    ("k", include_str!("../sql/statement/pay_warehouse.sql")),
    ("l", include_str!("../sql/statement/insert_history.sql")),
    ("m", include_str!("../sql/statement/customer_balance.sql")),
    ("n", include_str!("../sql/statement/last_order.sql")),
    ("o", include_str!("../sql/statement/order_lines.sql")),
    ("p", include_str!("../sql/statement/lock_deliveries.sql")),
    ("q", include_str!("../sql/statement/take_oldest.sql")),
    ("r", include_str!("../sql/statement/deliver_order.sql")),
    ("s", include_str!("../sql/statement/deliver_lines.sql")),
    ("t", include_str!("../sql/statement/charge_customer.sql")),
    ("u", include_str!("../sql/statement/low_stock.sql")),
    ("v", "COMMIT"),
    ("w", "ROLLBACK"),
];
pub const BEGIN: &str = "x";

impl Statement {
    pub fn name(self) -> &'static str {
        SQL.get(self as usize).map_or(BEGIN, |(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgwire::frontend::Cents;

    #[test]
    fn literals_take_the_places_of_the_parameters() {
        let mut out = Vec::new();
        let parameters: [&dyn Parameter; 3] = [&7_i32, &&b"O'Bar"[..], &Some(Cents(-1205))];
        append_text(&mut out, "SELECT $2, $1, $3::numeric, $1", b'1', &parameters);
        assert_eq!(String::from_utf8(out).expect("text"), "SELECT 'O''Bar', 7, -12.05::numeric, 7");
    }
}

#[cfg(test)]
mod sql_tests {
    use super::*;

    #[test]
    fn statements_and_their_sql_are_in_the_same_order() {
        let cases = [
            (Statement::Buyer, "c_discount"),
            (Statement::TakeStock, "UPDATE stock"),
            (Statement::CustomersByName, "ORDER BY c_first"),
            (Statement::InsertHistory, "INSERT INTO history"),
            (Statement::LockDeliveries, "pg_advisory_xact_lock"),
            (Statement::ChargeCustomer, "c_delivery_cnt + 1"),
            (Statement::LowStock, "count(DISTINCT"),
            (Statement::Commit, "COMMIT"),
            (Statement::Rollback, "ROLLBACK"),
        ];
        for (statement, text) in cases {
            assert!(SQL[statement as usize].1.contains(text), "{statement:?}");
            assert_eq!(SQL[statement as usize].0, statement.name());
        }
        assert_eq!(Statement::Begin.name(), BEGIN);
        assert!(SQL.iter().all(|(name, _)| *name != BEGIN));
    }
}
