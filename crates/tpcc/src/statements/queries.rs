//! Order-Status and Stock-Level as statements (clauses 2.6.2, 2.8.2).

use super::exchange::Statement::{Begin, Commit, CustomerBalance, LastOrder, LowStock, OrderLines};
use super::exchange::{Outbox, Session, call, ignore, missing};
use super::payment;
use crate::deviation::{Deviation, Deviations};
use crate::input::OrderStatus;
use driver::Ending;
use reactor::Error;

pub async fn order_status(
    session: &mut Session<'_>,
    warehouse: i32,
    status: &OrderStatus,
    deviations: Deviations,
    customers: &mut Vec<i32>,
) -> Result<Ending, Error> {
    let district = status.district;
    let customer =
        payment::begin(session, (warehouse, district), &status.customer, deviations, customers).await?;
    let mut order = None;
    session
        .exchange(
            2,
            |out, index| {
                let statement = if index == 0 { CustomerBalance } else { LastOrder };
                call(out, statement, &[&warehouse, &district, &customer])
            },
            |index, row| {
                if index == 1 {
                    order = Some(row.i32(0)?);
                }
                Ok(())
            },
        )
        .await?;
    if deviations.has(Deviation::RepeatedOrderCustomers) {
        order = order.or(Some(0)); // No order has this number.
    }
    let mut order = order.ok_or_else(|| missing("order of a customer who must have one"))?;
    if deviations.has(Deviation::OrderStatusOfDistrict) {
        order = i32::from(district);
    }
    let send = |out: &mut Outbox<'_>, index: usize| match index {
        0 => call(out, OrderLines, &[&warehouse, &district, &order]),
        _ => call(out, Commit, &[]),
    };
    session.exchange(2, send, ignore).await?;
    Ok(Ending::Committed)
}

pub async fn stock_level(
    session: &mut Session<'_>,
    warehouse: i32,
    district: i16,
    threshold: i16,
) -> Result<Ending, Error> {
    let send = |out: &mut Outbox<'_>, index: usize| match index {
        0 => call(out, Begin, &[]),
        1 => call(out, LowStock, &[&warehouse, &district, &threshold]),
        _ => call(out, Commit, &[]),
    };
    session.exchange(3, send, ignore).await?;
    Ok(Ending::Committed)
}
