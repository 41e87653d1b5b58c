//! Payment as statements (clause 2.5.2), and the search for a customer by name.

use super::exchange::Statement::{
    Begin, Commit, CustomersByName, InsertHistory, PayCustomer, PayDistrict, PayWarehouse,
};
use super::exchange::{Outbox, Session, call, ignore, missing};
use crate::deviation::{Deviation, Deviations};
use crate::input::{Customer, Payment};
use driver::Ending;
use pgwire::frontend::Cents;
use reactor::Error;

/// `H_DATA`: two names of at most ten characters, four spaces between them.
const HISTORY_BYTES_MAX: usize = 24;

/// A name of a warehouse or district.
#[derive(Clone, Copy, Default)]
struct Name {
    letters: [u8; 10],
    length: usize,
}

impl Name {
    fn read(text: &str) -> Self {
        let mut name = Self { length: text.len().min(10), ..Self::default() };
        name.letters[..name.length].copy_from_slice(&text.as_bytes()[..name.length]);
        name
    }
}

pub async fn attempt(
    session: &mut Session<'_>,
    warehouse: i32,
    payment: &Payment,
    deviations: Deviations,
    customers: &mut Vec<i32>,
) -> Result<Ending, Error> {
    let place = (payment.customer_warehouse, payment.customer_district);
    let customer = begin(session, place, &payment.customer, deviations, customers).await?;
    let warehouse_first = deviations.has(Deviation::WarehouseRowFirst);
    let (warehouse_name, district_name) = pay(session, warehouse, payment, customer, warehouse_first).await?;

    let mut text = [b' '; HISTORY_BYTES_MAX];
    let second = warehouse_name.length + 4;
    let end = second + district_name.length;
    text[..warehouse_name.length].copy_from_slice(&warehouse_name.letters[..warehouse_name.length]);
    text[second..end].copy_from_slice(&district_name.letters[..district_name.length]);
    let amount = Cents(payment.amount_cents);
    let send = |out: &mut Outbox<'_>, index: usize| match index {
        0 => call(
            out,
            InsertHistory,
            &[&place.1, &place.0, &customer, &payment.district, &warehouse, &amount, &&text[..end]],
        ),
        _ => call(out, Commit, &[]),
    };
    session.exchange(2, send, ignore).await?;
    Ok(Ending::Committed)
}

/// Changes the customer, the district and, last because all payments wait for it, the warehouse; or in the reverse order.
/// Gives the names of the warehouse and the district.
async fn pay(
    session: &mut Session<'_>,
    warehouse: i32,
    payment: &Payment,
    customer: i32,
    warehouse_first: bool,
) -> Result<(Name, Name), Error> {
    let amount = Cents(payment.amount_cents);
    let district = payment.district;
    let mut names = [None; 3];
    let place = |index| if warehouse_first { 2 - index } else { index };
    session
        .exchange(
            3,
            |out, index| match place(index) {
                0 => call(
                    out,
                    PayCustomer,
                    &[
                        &payment.customer_warehouse,
                        &payment.customer_district,
                        &customer,
                        &amount,
                        &district,
                        &warehouse,
                    ],
                ),
                1 => call(out, PayDistrict, &[&warehouse, &district, &amount]),
                _ => call(out, PayWarehouse, &[&warehouse, &amount]),
            },
            |index, row| {
                names[place(index)] = Some(Name::read(row.text(0)?));
                Ok(())
            },
        )
        .await?;
    match names {
        [Some(_), Some(district), Some(warehouse)] => Ok((warehouse, district)),
        _ => Err(missing("such customer, district or warehouse")),
    }
}

/// Begins, and finds the customer of a warehouse and district: row n/2, rounded up, of those of a last name, or the
/// row after it.
pub async fn begin(
    session: &mut Session<'_>,
    place: (i32, i16),
    customer: &Customer,
    deviations: Deviations,
    found: &mut Vec<i32>,
) -> Result<i32, Error> {
    found.clear();
    let (warehouse, district) = place;
    let statements = if customer.name().is_some() { 2 } else { 1 };
    session
        .exchange(
            statements,
            |out, index| match index {
                0 => call(out, Begin, &[]),
                _ => call(out, CustomersByName, &[&warehouse, &district, &customer.name()]),
            },
            |_, row| {
                found.push(row.i32(0)?);
                Ok(())
            },
        )
        .await?;
    let after = usize::from(deviations.has(Deviation::CustomerAfterMiddle));
    let chosen = (found.len().div_ceil(2) + after).min(found.len());
    let middle = chosen.checked_sub(1).and_then(|index| found.get(index).copied());
    customer.id().or(middle).ok_or_else(|| missing("customer of a name that it must have"))
}
