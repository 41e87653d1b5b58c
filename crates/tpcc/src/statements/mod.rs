//! Transactions as the client's own SQL, as a careful application would send it: prepared, one round trip a
//! statement, or, pipelined, one round trip for all statements whose inputs are known.

mod delivery;
mod exchange;
mod new_order;
mod payment;
mod queries;

use super::deviation::{Deviation, Deviations};
use super::input::{Desk, Input};
use super::specification::Isolation;
use driver::Ending;
pub(super) use exchange::Scratch;
use exchange::{SQL, Session, Statement, name};
pub(super) use exchange::{append_text, missing};
use reactor::{Connection, Error};

pub(super) async fn prepare(
    connection: &mut Connection,
    isolation: Isolation,
    deviations: Deviations,
    scratch: &mut Scratch,
) -> Result<(), Error> {
    let begin = format!("BEGIN ISOLATION LEVEL {}", isolation.sql());
    if deviations.has(Deviation::TextProtocol) {
        let texts = SQL.iter().map(|(sql, _)| deviations.render(sql).into_owned());
        scratch.texts = texts.chain([begin]).collect();
        return Ok(());
    }
    for (index, (sql, types)) in SQL.iter().enumerate() {
        connection.prepare(name(index), &*deviations.render(sql), types).await?;
    }
    connection.prepare(name(Statement::Begin as usize), &begin, &[]).await
}

/// The SQL of all statements, with its marks.
#[cfg(test)]
pub(super) fn texts() -> impl Iterator<Item = &'static str> {
    SQL.iter().map(|(sql, _)| *sql)
}

pub(super) async fn attempt(
    connection: &mut Connection,
    pipeline: bool,
    desk: &Desk,
    input: &Input,
    scratch: &mut Scratch,
) -> Result<Ending, Error> {
    let Scratch { customers, texts } = scratch;
    let texts = (!texts.is_empty()).then_some(&texts[..]);
    let mut session = Session { connection, pipeline, texts };
    let (warehouse, deviations) = (desk.warehouse as i32, desk.deviations);
    match input {
        Input::NewOrder(order) => new_order::attempt(&mut session, warehouse, order).await,
        Input::Payment(payment) => {
            payment::attempt(&mut session, warehouse, payment, deviations, customers).await
        }
        Input::OrderStatus(status) => {
            queries::order_status(&mut session, warehouse, status, deviations, customers).await
        }
        Input::Delivery(carrier) => delivery::attempt(&mut session, warehouse, *carrier).await,
        Input::StockLevel(threshold) => {
            queries::stock_level(&mut session, warehouse, desk.district as i16, *threshold).await
        }
    }
}
