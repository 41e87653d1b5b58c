//! The statements. `$0` is the number of the set; `$1` to `$9` are values.

macro_rules! sql {
    ($name:literal) => {
        include_str!(concat!("statements/", $name, ".sql")).trim_ascii_end()
    };
}

pub const BUYER: &str = sql!("buyer");
pub const LOCK_DISTRICT: &str = sql!("lock_district");
pub const SET_NEXT_ORDER: &str = sql!("set_next_order");
pub const INSERT_ORDER: &str = sql!("insert_order");
pub const INSERT_NEW_ORDER: &str = sql!("insert_new_order");
pub const ITEM: &str = sql!("item");
/// `$3` is the number of a district in two digits: each reads its own column.
pub const LOCK_STOCK: &str = sql!("lock_stock");
pub const SET_STOCK: &str = sql!("set_stock");
pub const INSERT_ORDER_LINE: &str = sql!("insert_order_line");

pub const PAY_WAREHOUSE: &str = sql!("pay_warehouse");
pub const WAREHOUSE: &str = sql!("warehouse");
pub const PAY_DISTRICT: &str = sql!("pay_district");
pub const DISTRICT: &str = sql!("district");
pub const COUNT_BY_NAME: &str = sql!("count_by_name");
pub const PAYERS_BY_NAME: &str = sql!("payers_by_name");
pub const LOCK_CUSTOMER: &str = sql!("lock_customer");
pub const CUSTOMER_DATA: &str = sql!("customer_data");
pub const SET_CUSTOMER_WITH_DATA: &str = sql!("set_customer_with_data");
pub const SET_CUSTOMER: &str = sql!("set_customer");
pub const INSERT_HISTORY: &str = sql!("insert_history");

pub const ASKERS_BY_NAME: &str = sql!("askers_by_name");
pub const CUSTOMER: &str = sql!("customer");
/// Without LIMIT: all orders of the customer are sent, and the first is used.
pub const ORDERS: &str = sql!("orders");
pub const ORDER_LINES: &str = sql!("order_lines");

pub const OLDEST_NEW_ORDER: &str = sql!("oldest_new_order");
pub const DELETE_NEW_ORDER: &str = sql!("delete_new_order");
pub const CUSTOMER_OF_ORDER: &str = sql!("customer_of_order");
pub const SET_CARRIER: &str = sql!("set_carrier");
pub const DATE_LINES: &str = sql!("date_lines");
pub const SUM_LINES: &str = sql!("sum_lines");
pub const CHARGE_CUSTOMER: &str = sql!("charge_customer");

pub const NEXT_ORDER: &str = sql!("next_order");
pub const LOW_STOCK: &str = sql!("low_stock");
