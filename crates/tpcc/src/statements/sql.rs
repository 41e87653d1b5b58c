//! The statements, their names and their texts.

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
