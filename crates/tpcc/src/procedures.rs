//! Transactions as one call of a server-side routine each: one round trip, committed by the server.

use super::deviation::{Deviation, Deviations};
use super::input::{Desk, Input};
use super::schema::OwnRoutines;
use super::specification::Isolation;
use driver::Ending;
use pgwire::frontend::{self, Cents, Parameter};
use reactor::{Connection, Error};

/// The SQLSTATE that `tpcc_new_order` raises for an unused item.
const UNUSED_ITEM: &str = "PD001";

const CALLS: [(&str, &str); 5] = [
    ("n", include_str!("sql/call/new_order.sql")),
    ("p", include_str!("sql/call/payment.sql")),
    ("o", include_str!("sql/call/order_status.sql")),
    ("d", include_str!("sql/call/delivery.sql")),
    ("s", include_str!("sql/call/stock_level.sql")),
];

/// `are_missing`: the database has no routines of ours.
pub(super) async fn prepare(
    connection: &mut Connection,
    isolation: Isolation,
    deviations: Deviations,
    are_missing: bool,
) -> Result<(), Error> {
    let own = OwnRoutines::new(deviations, are_missing);
    if let Some(own) = &own
        && connection.simple(&own.exist()).await?.is_empty()
    {
        connection.simple(&own.create()).await?;
    }
    connection.simple(&format!("SET default_transaction_isolation = '{}'", isolation.sql())).await?;
    for (name, sql) in CALLS {
        let sql = own.as_ref().map_or_else(|| sql.to_owned(), |own| own.sql(sql));
        connection.prepare(name, sql, &[]).await?;
    }
    Ok(())
}

#[inline]
pub(super) async fn attempt(
    connection: &mut Connection,
    desk: &Desk,
    input: &Input,
) -> Result<Ending, Error> {
    send(connection.out(), desk, input)?;
    connection.flush().await?;
    let answer = connection.answer().await;
    match (answer, rolls_back(desk, input)) {
        (Ok(()), false) => Ok(Ending::Committed),
        (Ok(()), true) => Err(Error::Workload("the server sold an item that does not exist".to_owned())),
        (Err(error), true) if error.sqlstate().is_some_and(|code| code.as_str() == UNUSED_ITEM) => {
            Ok(Ending::RolledBack)
        }
        (Err(error), _) => Err(error),
    }
}

fn rolls_back(desk: &Desk, input: &Input) -> bool {
    let commits = desk.deviations.has(Deviation::UnusedItemCommitted);
    matches!(input, Input::NewOrder(order) if order.rolls_back && !commits)
}

fn send(out: &mut Vec<u8>, desk: &Desk, input: &Input) -> Result<(), Error> {
    let warehouse = desk.warehouse as i32;
    let (name, _) = CALLS[input.kind() as usize];
    let mut call = |parameters: &[&dyn Parameter]| frontend::bind(out, name, parameters);
    match input {
        Input::NewOrder(order) => call(&[
            &warehouse,
            &order.district,
            &order.customer,
            &order.items(),
            &order.supplies(),
            &order.quantities(),
            &order.has_duplicates,
        ]),
        Input::Payment(payment) => call(&[
            &warehouse,
            &payment.district,
            &payment.customer_warehouse,
            &payment.customer_district,
            &payment.customer.id(),
            &payment.customer.name(),
            &Cents(payment.amount_cents),
        ]),
        Input::OrderStatus(status) => {
            call(&[&warehouse, &status.district, &status.customer.id(), &status.customer.name()])
        }
        Input::Delivery(carrier) => call(&[&warehouse, carrier]),
        Input::StockLevel(threshold) => call(&[&warehouse, &(desk.district as i16), threshold]),
    }?;
    frontend::execute(out);
    frontend::sync(out);
    Ok(())
}
