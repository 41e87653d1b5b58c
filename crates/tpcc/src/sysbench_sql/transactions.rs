//! The transactions: rows are read and locked, and updated with values that the client computes.

use std::io::Write;

use driver::Ending;
use pgwire::backend::{Message, ProtocolError, Row};
use pgwire::frontend::{self, Decimal, Parameter};
use reactor::{Connection, Error};

use super::{SYSBENCH_WAREHOUSES_MAX, place_of, statement as sql, warehouses_of};
use crate::input::{Customer, Desk, Input, NewOrder, OrderStatus, Payment, UNUSED_ITEM};
use crate::population::DISTRICTS;
use crate::specification::Isolation;
use crate::statements::{append_text, missing};

/// The item that sysbench-tpcc asks for in place of one that does not exist.
const NO_ITEM: i32 = -1;
/// Characters of `C_DATA` that a payment keeps.
const DATA_BYTES_MAX: usize = 500;

/// A set of tables, and a warehouse of it.
#[derive(Clone, Copy)]
struct Place {
    set: i32,
    warehouse: i16,
}

/// A number of a district in two digits, as in the name of a column.
struct TwoDigits(i16);

impl Parameter for TwoDigits {
    fn append(&self, _: &mut Vec<u8>) -> bool {
        false
    }

    fn append_literal(&self, out: &mut Vec<u8>) {
        let _ = write!(out, "{:02}", self.0); // Writing to a Vec cannot fail.
    }
}

/// An amount in hundredths, as `%f` prints it.
fn six_decimals(cents: i64) -> Decimal {
    Decimal { scaled: cents * 10_000, scale: 6 }
}

pub async fn prepare(connection: &mut Connection, isolation: Isolation) -> Result<(), Error> {
    let level = isolation.sql();
    connection.simple(&format!("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}")).await?;
    connection.simple("SET search_path TO public").await.map(|_| ())
}

/// The warehouses of all sets, which must share them in turn.
pub async fn count_warehouses(connection: &mut Connection, sets: u32) -> Result<u32, Error> {
    let counts: Vec<_> =
        (1..=sets).map(|set| format!("(SELECT count(*) FROM public.warehouse{set})")).collect();
    let found = connection.simple(&format!("SELECT {}", counts.join(", "))).await?;
    let counts: Vec<u32> = found
        .into_iter()
        .flatten()
        .map(|count| count?.parse().ok())
        .collect::<Option<_>>()
        .unwrap_or_default();
    let all = counts.iter().sum();
    let due = |(set, _): (u32, &u32)| warehouses_of(set, sets, all);
    match counts.iter().max() {
        Some(1..=SYSBENCH_WAREHOUSES_MAX) if (1..).zip(&counts).map(due).eq(counts.iter().copied()) => {
            Ok(all)
        }
        _ => Err(Error::Workload(format!(
            "the {sets} sets of tables have no warehouses, or too many, or unlike numbers of them: \
             give the number of sets, or load the data again"
        ))),
    }
}

pub async fn attempt(
    connection: &mut Connection,
    sets: u32,
    desk: &Desk,
    input: &Input,
) -> Result<Ending, Error> {
    let (set, warehouse) = place_of(desk.warehouse, sets);
    let place = Place { set: set as i32, warehouse: warehouse as i16 };
    run(connection, "BEGIN", &[]).await?;
    let ending = match input {
        Input::NewOrder(order) => new_order(connection, place, order).await?,
        Input::Payment(payment) => pay(connection, place, payment).await?,
        Input::OrderStatus(status) => order_status(connection, place, status).await?,
        Input::Delivery(carrier) => deliver(connection, place, *carrier).await?,
        Input::StockLevel(threshold) => {
            stock_level(connection, place, desk.district as i16, *threshold).await?
        }
    };
    run(connection, if ending == Ending::Committed { "COMMIT" } else { "ROLLBACK" }, &[]).await?;
    Ok(ending)
}

/// Carries out a statement and reads its rows. `values[0]` is the set.
async fn rows(
    connection: &mut Connection,
    sql: &str,
    values: &[&dyn Parameter],
    mut read: impl FnMut(Row<'_>) -> Result<(), ProtocolError>,
) -> Result<(), Error> {
    frontend::query_in_place(connection.out(), |out| append_text(out, sql, b'0', values))?;
    connection.flush().await?;
    loop {
        match connection.next().await? {
            Message::DataRow(row) => read(row)?,
            Message::ReadyForQuery(_) => return Ok(()),
            _ => {}
        }
    }
}

/// Carries out a statement whose rows are not looked at.
async fn run(connection: &mut Connection, sql: &str, values: &[&dyn Parameter]) -> Result<(), Error> {
    rows(connection, sql, values, |_| Ok(())).await
}

/// Carries out a statement and gives a function of its first row, if there is one.
async fn first<T>(
    connection: &mut Connection,
    sql: &str,
    values: &[&dyn Parameter],
    read: impl Fn(Row<'_>) -> Result<T, ProtocolError>,
) -> Result<Option<T>, Error> {
    let mut first = None;
    let keep = |row: Row<'_>| {
        if first.is_none() {
            first = Some(read(row)?);
        }
        Ok(())
    };
    rows(connection, sql, values, keep).await?;
    Ok(first)
}

/// The same; an error without rows.
async fn row<T>(
    connection: &mut Connection,
    what: &str,
    sql: &str,
    values: &[&dyn Parameter],
    read: impl Fn(Row<'_>) -> Result<T, ProtocolError>,
) -> Result<T, Error> {
    first(connection, sql, values, read).await?.ok_or_else(|| missing(what))
}

/// A number of a column. Lua's numbers are doubles, too.
fn number<T: std::str::FromStr>(row: &Row<'_>, column: usize) -> Result<T, ProtocolError> {
    let wrong = ProtocolError::ColumnType { column, expected: "number" };
    row.text(column)?.parse().map_err(|_| wrong)
}

/// A `numeric` of two decimals in hundredths.
fn cents(row: &Row<'_>, column: usize) -> Result<i64, ProtocolError> {
    Ok((number::<f64>(row, column)? * 100.0).round() as i64)
}

async fn new_order(connection: &mut Connection, place: Place, order: &NewOrder) -> Result<Ending, Error> {
    let Place { set, warehouse } = place;
    let (district, customer) = (order.district, order.customer);
    let (discount, warehouse_tax) =
        row(connection, "such customer", sql::BUYER, &[&set, &warehouse, &district, &customer], |row| {
            Ok((number::<f64>(&row, 0)?, number::<f64>(&row, 3)?))
        })
        .await?;
    let (id, district_tax) =
        row(connection, "such district", sql::LOCK_DISTRICT, &[&set, &warehouse, &district], |row| {
            Ok((number::<i32>(&row, 0)?, number::<f64>(&row, 1)?))
        })
        .await?;
    run(connection, sql::SET_NEXT_ORDER, &[&set, &warehouse, &district, &(id + 1)]).await?;
    let (lines, all_local) = (order.items().len() as i16, i16::from(order.all_local));
    let values: [&dyn Parameter; 7] = [&set, &id, &district, &warehouse, &customer, &lines, &all_local];
    run(connection, sql::INSERT_ORDER, &values).await?;
    run(connection, sql::INSERT_NEW_ORDER, &[&set, &id, &district, &warehouse]).await?;
    let factor = (1.0 + warehouse_tax + district_tax) * (1.0 - discount);
    for (index, (&item, &quantity)) in order.items().iter().zip(order.quantities()).enumerate() {
        let item = if item == UNUSED_ITEM { NO_ITEM } else { item };
        let price = first(connection, sql::ITEM, &[&set, &item], |row| number::<f64>(&row, 0)).await?;
        let Some(price) = price else {
            return if item == NO_ITEM { Ok(Ending::RolledBack) } else { Err(missing("such item")) };
        };
        let values: [&dyn Parameter; 4] = [&set, &item, &warehouse, &TwoDigits(district)];
        let (in_stock, dist_info) = row(connection, "such stock", sql::LOCK_STOCK, &values, |row| {
            Ok((number::<i16>(&row, 0)?, row.text(2)?.to_owned()))
        })
        .await?;
        let left = in_stock - quantity + if in_stock > quantity { 0 } else { 91 };
        run(connection, sql::SET_STOCK, &[&set, &item, &warehouse, &left]).await?;
        let amount = (f64::from(quantity) * price * factor) as i64;
        let values: [&dyn Parameter; 10] = [
            &set,
            &id,
            &district,
            &warehouse,
            &(index as i16 + 1),
            &item,
            &warehouse,
            &quantity,
            &amount,
            &&dist_info[..],
        ];
        run(connection, sql::INSERT_ORDER_LINE, &values).await?;
    }
    if order.rolls_back {
        return Err(Error::Workload("the server sold an item that does not exist".to_owned()));
    }
    Ok(Ending::Committed)
}

async fn pay(connection: &mut Connection, place: Place, payment: &Payment) -> Result<Ending, Error> {
    let Place { set, warehouse } = place;
    let district = payment.district;
    let amount = payment.amount_cents / 100;
    run(connection, sql::PAY_WAREHOUSE, &[&set, &warehouse, &amount]).await?;
    let name = |row: Row<'_>| Ok(row.text(5)?.to_owned());
    let warehouse_name = row(connection, "such warehouse", sql::WAREHOUSE, &[&set, &warehouse], name).await?;
    run(connection, sql::PAY_DISTRICT, &[&set, &warehouse, &district, &amount]).await?;
    let district_name =
        row(connection, "such district", sql::DISTRICT, &[&set, &warehouse, &district], name).await?;
    // The customer's warehouse is the same: sysbench-tpcc never draws another one.
    let of_customer = payment.customer_district;
    let customer = find(connection, place, of_customer, &payment.customer, sql::PAYERS_BY_NAME, 0).await?;
    let values: [&dyn Parameter; 4] = [&set, &warehouse, &of_customer, &customer];
    let (is_bad, balance, paid) = row(connection, "such customer", sql::LOCK_CUSTOMER, &values, |row| {
        Ok((row.text(9)? == "BC", cents(&row, 12)?, cents(&row, 13)?))
    })
    .await?;
    let (balance, paid) =
        (six_decimals(balance - payment.amount_cents), six_decimals(paid + payment.amount_cents));
    if is_bad {
        let data = row(connection, "such customer", sql::CUSTOMER_DATA, &values, |row| {
            let (now, old) = (unix_time_s(), row.text(0)?);
            let mut data = format!(
                "| {customer:4} {of_customer:2} {warehouse:4} {district:2} {warehouse:4} ${:7.2} {now:12} {old:24}",
                amount as f64
            );
            truncate(&mut data);
            Ok(data)
        })
        .await?;
        let values: [&dyn Parameter; 7] = [&set, &warehouse, &of_customer, &customer, &balance, &paid, &data];
        run(connection, sql::SET_CUSTOMER_WITH_DATA, &values).await?;
    } else {
        let values: [&dyn Parameter; 6] = [&set, &warehouse, &of_customer, &customer, &balance, &paid];
        run(connection, sql::SET_CUSTOMER, &values).await?;
    }
    let text = format!("{warehouse_name:>10} {district_name:>10}   ");
    let values: [&dyn Parameter; 8] =
        [&set, &of_customer, &warehouse, &customer, &district, &warehouse, &amount, &text];
    run(connection, sql::INSERT_HISTORY, &values).await?;
    Ok(Ending::Committed)
}

/// Cuts the data of a customer to [`DATA_BYTES_MAX`], before a character that would be cut in two.
fn truncate(data: &mut String) {
    let mut end = DATA_BYTES_MAX.min(data.len());
    while !data.is_char_boundary(end) {
        end -= 1;
    }
    data.truncate(end);
}

/// Seconds since 1970, for a text.
fn unix_time_s() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())
}

/// The number of a customer. By name: the row after the middle (deviation `customer-after-middle`), whose number is in
/// `column` of `by_name`.
async fn find(
    connection: &mut Connection,
    place: Place,
    district: i16,
    customer: &Customer,
    by_name: &str,
    column: usize,
) -> Result<i32, Error> {
    let (None, Some(name)) = (customer.id(), customer.name()) else {
        return customer.id().ok_or_else(|| missing("such customer"));
    };
    let values: [&dyn Parameter; 4] = [&place.set, &place.warehouse, &district, &name];
    let count =
        row(connection, "customer of a name", sql::COUNT_BY_NAME, &values, |row| number::<usize>(&row, 0))
            .await?;
    let (chosen, mut index, mut found) = (after_middle(count), 0, None);
    rows(connection, by_name, &values, |row| {
        index += 1;
        if index == chosen {
            found = Some(number::<i32>(&row, column)?);
        }
        Ok(())
    })
    .await?;
    found.ok_or_else(|| missing("customer of a name that it must have"))
}

/// The row, from 1, that sysbench-tpcc takes of `count` ones.
fn after_middle(count: usize) -> usize {
    (count.div_ceil(2) + 1).min(count)
}

async fn order_status(
    connection: &mut Connection,
    place: Place,
    status: &OrderStatus,
) -> Result<Ending, Error> {
    let Place { set, warehouse } = place;
    let district = status.district;
    let customer = find(connection, place, district, &status.customer, sql::ASKERS_BY_NAME, 3).await?;
    if status.customer.name().is_none() {
        run(connection, sql::CUSTOMER, &[&set, &warehouse, &district, &customer]).await?;
    }
    run(connection, sql::ORDERS, &[&set, &warehouse, &district, &customer]).await?;
    // The number of the district in place of that of the order (deviation `order-status-of-district`).
    run(connection, sql::ORDER_LINES, &[&set, &warehouse, &district, &district]).await?;
    Ok(Ending::Committed)
}

async fn deliver(connection: &mut Connection, place: Place, carrier: i16) -> Result<Ending, Error> {
    let Place { set, warehouse } = place;
    for district in 1..=DISTRICTS as i16 {
        let of_district: [&dyn Parameter; 3] = [&set, &warehouse, &district];
        let oldest =
            first(connection, sql::OLDEST_NEW_ORDER, &of_district, |row| number::<i32>(&row, 0)).await?;
        let Some(order) = oldest else { continue };
        let values: [&dyn Parameter; 4] = [&set, &warehouse, &district, &order];
        run(connection, sql::DELETE_NEW_ORDER, &values).await?;
        let customer =
            row(connection, "such order", sql::CUSTOMER_OF_ORDER, &values, |row| number::<i32>(&row, 0))
                .await?;
        run(connection, sql::SET_CARRIER, &[&set, &warehouse, &district, &order, &carrier]).await?;
        run(connection, sql::DATE_LINES, &values).await?;
        let amount = row(connection, "such lines", sql::SUM_LINES, &values, |row| cents(&row, 0)).await?;
        let values: [&dyn Parameter; 5] = [&set, &warehouse, &district, &customer, &six_decimals(amount)];
        run(connection, sql::CHARGE_CUSTOMER, &values).await?;
    }
    Ok(Ending::Committed)
}

async fn stock_level(
    connection: &mut Connection,
    place: Place,
    district: i16,
    threshold: i16,
) -> Result<Ending, Error> {
    let Place { set, warehouse } = place;
    let next = row(connection, "such district", sql::NEXT_ORDER, &[&set, &warehouse, &district], |row| {
        number::<i32>(&row, 0)
    })
    .await?;
    let values: [&dyn Parameter; 6] = [&set, &warehouse, &district, &next, &(next - 20), &threshold];
    run(connection, sql::LOW_STOCK, &values).await?;
    Ok(Ending::Committed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_row_after_the_middle_is_the_last_one_at_most() {
        assert_eq!([1, 2, 3, 4, 5, 6].map(after_middle), [1, 2, 3, 3, 4, 4]);
    }

    #[test]
    fn data_are_cut_between_two_characters() {
        let mut data = "a".repeat(DATA_BYTES_MAX - 1) + "é and more";
        truncate(&mut data);
        assert_eq!(data, "a".repeat(DATA_BYTES_MAX - 1));
        let mut short = "é".to_owned();
        truncate(&mut short);
        assert_eq!(short, "é");
    }

    #[test]
    fn amounts_have_six_decimals() {
        let mut out = Vec::new();
        six_decimals(-1234).append_literal(&mut out);
        assert_eq!(String::from_utf8(out).expect("text"), "-12.340000");
    }
}
