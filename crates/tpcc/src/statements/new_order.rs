//! New-Order as statements (clause 2.4.2).

use super::exchange::Statement::{
    Begin, Buyer, Commit, InsertNewOrder, InsertOrder, InsertOrderLine, Item, NextOrderId, Rollback,
    TakeStock,
};
use super::exchange::{Outbox, Session, call, ignore, missing};
use crate::input::{LINES_MAX, NewOrder, UNUSED_ITEM};
use driver::Ending;
use pgwire::frontend::Cents;
use reactor::Error;

/// Characters of `S_DIST_xx`.
const DIST_INFO: usize = 24;

/// What the database tells of a line.
#[derive(Clone, Copy, Default)]
struct Line {
    price_cents: Option<i64>,
    dist_info: [u8; DIST_INFO],
}

pub async fn attempt(session: &mut Session<'_>, warehouse: i32, order: &NewOrder) -> Result<Ending, Error> {
    let order_id = begin(session, warehouse, order).await?;
    let mut lines = [Line::default(); LINES_MAX];
    let lines = &mut lines[..order.items().len()];
    enter(session, warehouse, order, order_id, lines).await?;
    // Lines up to the first item that does not exist: all of them, or those before the unused item.
    let found = lines.iter().take_while(|line| line.price_cents.is_some()).count();
    let expected = order.items().iter().take_while(|&&item| item != UNUSED_ITEM).count();
    let ending = ending(found, expected, order.items().len())?;
    take_stock(session, warehouse, order, &mut lines[..found]).await?;
    finish(session, warehouse, order, order_id, &lines[..found], ending).await?;
    Ok(ending)
}

/// How an order has to end of whose lines so many were found, and so many precede the unused item. A database that lacks other items than the unused one,
/// or has that one, is damaged: nothing that it does is by design.
fn ending(found: usize, expected: usize, lines: usize) -> Result<Ending, Error> {
    match found {
        _ if found == expected && found == lines => Ok(Ending::Committed),
        _ if found == expected => Ok(Ending::RolledBack),
        _ if found > expected => {
            Err(Error::Workload("the server sold an item that does not exist".to_owned()))
        }
        _ => Err(missing("such item")),
    }
}

/// Begins, reads the customer and the warehouse, and takes the district's next order number.
async fn begin(session: &mut Session<'_>, warehouse: i32, order: &NewOrder) -> Result<i32, Error> {
    let mut order_id = None;
    let statements = [Begin, Buyer, NextOrderId];
    session
        .exchange(
            statements.len(),
            |out, index| match statements[index] {
                Buyer => call(out, Buyer, &[&warehouse, &order.district, &order.customer]),
                NextOrderId => call(out, NextOrderId, &[&warehouse, &order.district]),
                statement => call(out, statement, &[]),
            },
            |index, row| {
                if statements[index] == NextOrderId {
                    order_id = Some(row.i32(0)?);
                }
                Ok(())
            },
        )
        .await?;
    order_id.ok_or_else(|| missing("such district"))
}

/// Inserts the order and reads its items.
async fn enter(
    session: &mut Session<'_>,
    warehouse: i32,
    order: &NewOrder,
    order_id: i32,
    lines: &mut [Line],
) -> Result<(), Error> {
    let line_count = order.items().len() as i16;
    let all_local = i16::from(order.all_local);
    let district = order.district;
    session
        .exchange(
            2 + lines.len(),
            |out, index| match index {
                0 => call(
                    out,
                    InsertOrder,
                    &[&order_id, &district, &warehouse, &order.customer, &line_count, &all_local],
                ),
                1 => call(out, InsertNewOrder, &[&order_id, &district, &warehouse]),
                _ => call(out, Item, &[&order.items()[index - 2]]),
            },
            |index, row| {
                // A rule of the user may return rows of the statements before.
                if let Some(line) = index.checked_sub(2).and_then(|place| lines.get_mut(place)) {
                    line.price_cents = Some(row.cents(0)?);
                }
                Ok(())
            },
        )
        .await
}

async fn take_stock(
    session: &mut Session<'_>,
    warehouse: i32,
    order: &NewOrder,
    lines: &mut [Line],
) -> Result<(), Error> {
    session
        .exchange(
            lines.len(),
            |out, index| {
                let supply = order.supplies()[index];
                let is_remote = i32::from(supply != warehouse);
                let (item, quantity) = (order.items()[index], order.quantities()[index]);
                call(out, TakeStock, &[&supply, &item, &quantity, &is_remote, &order.district])
            },
            |index, row| {
                let text = row.text(0)?.as_bytes();
                let length = text.len().min(DIST_INFO);
                lines[index].dist_info[..length].copy_from_slice(&text[..length]);
                Ok(())
            },
        )
        .await
}

/// Inserts the lines and commits, or rolls back.
async fn finish(
    session: &mut Session<'_>,
    warehouse: i32,
    order: &NewOrder,
    order_id: i32,
    lines: &[Line],
    ending: Ending,
) -> Result<(), Error> {
    let end = if ending == Ending::Committed { Commit } else { Rollback };
    let send = |out: &mut Outbox<'_>, index: usize| {
        let Some(line) = lines.get(index) else {
            return call(out, end, &[]);
        };
        let quantity = order.quantities()[index];
        let amount = Cents(line.price_cents.unwrap_or(0) * i64::from(quantity));
        call(
            out,
            InsertOrderLine,
            &[
                &order_id,
                &order.district,
                &warehouse,
                &(index as i16 + 1),
                &order.items()[index],
                &order.supplies()[index],
                &quantity,
                &amount,
                &&line.dist_info[..],
            ],
        )
    };
    session.exchange(lines.len() + 1, send, ignore).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_order_of_the_unused_item_rolls_back_by_design() {
        assert!(matches!(ending(7, 7, 7), Ok(Ending::Committed)));
        for expected in [6, 5] {
            assert!(matches!(ending(expected, expected, 7), Ok(Ending::RolledBack)));
        }
        for (found, expected) in [(6, 7), (0, 7), (7, 6), (5, 6)] {
            assert!(matches!(ending(found, expected, 7), Err(Error::Workload(_))), "{found} {expected}");
        }
    }
}
