//! Several statements and their answers, in one round trip each or in one for all.

use pgwire::backend::{Message, ProtocolError, Row};
use pgwire::frontend::{self, EncodeError, Parameter};
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
    frontend::bind(out.bytes, name(statement as usize), parameters)?;
    frontend::execute(out.bytes);
    Ok(())
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

/// OIDs of types.
const I2: u32 = 21;
const I4: u32 = 23;
const NUMERIC: u32 = 1700;

macro_rules! statements {
    ($($statement:ident [$($type:expr),*] = $sql:expr),+ $(,)?) => {
        /// A prepared statement. BEGIN, which names the isolation level, is made in [`super::prepare`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Statement { $($statement),+, Begin }

        /// The texts of all but BEGIN, in order, and the types of their leading parameters: those of the columns may be
        /// others in a database of another program. The server infers those of texts.
        pub const SQL: &[(&str, &[u32])] = &[$(($sql, &[$($type),*])),+];
    };
}

statements! {
    Buyer [I4, I2, I4] = include_str!("../sql/statements/buyer.sql"),
    NextOrderId [I4, I2] = include_str!("../sql/statements/next_order_id.sql"),
    InsertOrder [I4, I2, I4, I4, I2, I2] = include_str!("../sql/statements/insert_order.sql"),
    InsertNewOrder [I4, I2, I4] = include_str!("../sql/statements/insert_new_order.sql"),
    Item [I4] = include_str!("../sql/statements/item.sql"),
    TakeStock [I4, I4, I2, I4, I2] = include_str!("../sql/statements/take_stock.sql"),
    InsertOrderLine [I4, I2, I4, I2, I4, I4, I2, NUMERIC] = include_str!("../sql/statements/insert_order_line.sql"),
    CustomersByName [I4, I2] = include_str!("../sql/statements/customers_by_name.sql"),
    PayCustomer [I4, I2, I4, NUMERIC, I2, I4] = include_str!("../sql/statements/pay_customer.sql"),
    PayDistrict [I4, I2, NUMERIC] = include_str!("../sql/statements/pay_district.sql"),
    PayWarehouse [I4, NUMERIC] = include_str!("../sql/statements/pay_warehouse.sql"),
    InsertHistory [I2, I4, I4, I2, I4, NUMERIC] = include_str!("../sql/statements/insert_history.sql"),
    CustomerBalance [I4, I2, I4] = include_str!("../sql/statements/customer_balance.sql"),
    LastOrder [I4, I2, I4] = include_str!("../sql/statements/last_order.sql"),
    OrderLines [I4, I2, I4] = include_str!("../sql/statements/order_lines.sql"),
    LockDeliveries [I4] = include_str!("../sql/statements/lock_deliveries.sql"),
    TakeOldest [I4, I2] = include_str!("../sql/statements/take_oldest.sql"),
    DeliverOrder [I4, I2, I4, I2] = include_str!("../sql/statements/deliver_order.sql"),
    DeliverLines [I4, I2, I4] = include_str!("../sql/statements/deliver_lines.sql"),
    ChargeCustomer [I4, I2, I4, NUMERIC] = include_str!("../sql/statements/charge_customer.sql"),
    LowStock [I4, I2, I2] = include_str!("../sql/statements/low_stock.sql"),
    Commit [] = "COMMIT",
    Rollback [] = "ROLLBACK",
}

/// The name on the wire of the statement of an index: a letter.
pub fn name(index: usize) -> &'static str {
    &"abcdefghijklmnopqrstuvwxyz"[index..=index]
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
