//! Transactions as the client's own SQL, as a careful application would send it: prepared, one round trip a
//! statement, or, pipelined, one round trip for all statements whose inputs are known.

mod delivery;
mod exchange;
mod new_order;
mod payment;
mod queries;
mod scratch;
mod sql;

use super::input::{Desk, Input};
use super::specification::Isolation;
use driver::Ending;
use exchange::Session;
use reactor::{Connection, Error};
pub(super) use scratch::Scratch;
use sql::{BEGIN, SQL};

pub(super) async fn prepare(connection: &mut Connection, isolation: Isolation) -> Result<(), Error> {
    for (name, sql) in SQL {
        connection.prepare(name, sql, &[]).await?;
    }
    connection.prepare(BEGIN, &format!("BEGIN ISOLATION LEVEL {}", isolation.sql()), &[]).await
}

pub(super) async fn attempt(
    connection: &mut Connection,
    pipeline: bool,
    desk: &Desk,
    input: &Input,
    scratch: &mut Scratch,
) -> Result<Ending, Error> {
    let mut session = Session { connection, pipeline };
    let warehouse = desk.warehouse as i32;
    match input {
        Input::NewOrder(order) => new_order::attempt(&mut session, warehouse, order).await,
        Input::Payment(payment) => payment::attempt(&mut session, warehouse, payment, scratch).await,
        Input::OrderStatus(status) => queries::order_status(&mut session, warehouse, status, scratch).await,
        Input::Delivery(carrier) => delivery::attempt(&mut session, warehouse, *carrier).await,
        Input::StockLevel(threshold) => {
            queries::stock_level(&mut session, warehouse, desk.district as i16, *threshold).await
        }
    }
}
