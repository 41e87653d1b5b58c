//! Delivery as statements (clause 2.7.4): ten orders in one database transaction.

use super::exchange::Statement::{
    Begin, ChargeCustomer, Commit, DeliverLines, DeliverOrder, LockDeliveries, TakeOldest,
};
use super::exchange::{Outbox, Session, call, ignore, missing};
use crate::population::DISTRICTS;
use driver::Ending;
use pgwire::frontend::Cents;
use reactor::Error;

const DISTRICTS_LEN: usize = DISTRICTS as usize;

/// The oldest order of a district, and what its delivery needs.
#[derive(Clone, Copy, Default)]
struct Order {
    district: i16,
    id: i32,
    customer: Option<i32>,
    amount_cents: Option<i64>,
}

pub async fn attempt(session: &mut Session<'_>, warehouse: i32, carrier: i16) -> Result<Ending, Error> {
    let mut orders = [Order::default(); DISTRICTS_LEN];
    let count = take_oldest(session, warehouse, &mut orders).await?;
    deliver(session, warehouse, carrier, &mut orders[..count]).await?;
    charge(session, warehouse, &orders[..count]).await?;
    Ok(Ending::Committed)
}

/// Begins, waits for other deliveries of the warehouse, and takes the oldest new order of each district that has one;
/// how many.
async fn take_oldest(
    session: &mut Session<'_>,
    warehouse: i32,
    orders: &mut [Order; DISTRICTS_LEN],
) -> Result<usize, Error> {
    // BEGIN, the lock, then a statement for each district.
    const BEFORE: usize = 2;
    let mut count = 0;
    session
        .exchange(
            BEFORE + DISTRICTS_LEN,
            |out, index| match index {
                0 => call(out, Begin, &[]),
                1 => call(out, LockDeliveries, &[&warehouse]),
                _ => call(out, TakeOldest, &[&warehouse, &((index - BEFORE) as i16 + 1)]),
            },
            |index, row| {
                if index >= BEFORE {
                    let district = (index - BEFORE) as i16 + 1;
                    orders[count] = Order { district, id: row.i32(0)?, ..Order::default() };
                    count += 1;
                }
                Ok(())
            },
        )
        .await?;
    Ok(count)
}

/// Notes the carrier and the date, and reads whom each order belongs to and what it costs.
async fn deliver(
    session: &mut Session<'_>,
    warehouse: i32,
    carrier: i16,
    orders: &mut [Order],
) -> Result<(), Error> {
    let chosen: [Order; DISTRICTS_LEN] = std::array::from_fn(|i| orders.get(i).copied().unwrap_or_default());
    session
        .exchange(
            2 * orders.len(),
            |out, index| {
                let order = chosen[index / 2];
                match index % 2 {
                    0 => call(out, DeliverOrder, &[&warehouse, &order.district, &order.id, &carrier]),
                    _ => call(out, DeliverLines, &[&warehouse, &order.district, &order.id]),
                }
            },
            |index, row| {
                let order = &mut orders[index / 2];
                match index % 2 {
                    0 => order.customer = Some(row.i32(0)?),
                    _ => order.amount_cents = Some(row.cents(0)?),
                }
                Ok(())
            },
        )
        .await
}

async fn charge(session: &mut Session<'_>, warehouse: i32, orders: &[Order]) -> Result<(), Error> {
    if orders.iter().any(|order| order.customer.is_none() || order.amount_cents.is_none()) {
        return Err(missing("order that it has a new order for"));
    }
    let send = |out: &mut Outbox<'_>, index: usize| match orders.get(index) {
        Some(order) => {
            let (customer, amount) = (order.customer, order.amount_cents.map(Cents));
            call(out, ChargeCustomer, &[&warehouse, &order.district, &customer, &amount])
        }
        None => call(out, Commit, &[]),
    };
    session.exchange(orders.len() + 1, send, ignore).await
}
