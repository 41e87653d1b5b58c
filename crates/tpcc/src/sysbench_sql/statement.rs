//! The statements. `$0` is the number of the set; `$1` to `$9` are values.

pub const BUYER: &str = "SELECT c_discount, c_last, c_credit, w_tax FROM customer$0, warehouse$0 \
    WHERE w_id = $1 AND c_w_id = w_id AND c_d_id = $2 AND c_id = $3";
pub const LOCK_DISTRICT: &str =
    "SELECT d_next_o_id, d_tax FROM district$0 WHERE d_w_id = $1 AND d_id = $2 FOR UPDATE";
pub const SET_NEXT_ORDER: &str = "UPDATE district$0 SET d_next_o_id = $3 WHERE d_id = $2 AND d_w_id = $1";
pub const INSERT_ORDER: &str = "INSERT INTO orders$0 \
    (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local) VALUES ($1, $2, $3, $4, now(), $5, $6)";
pub const INSERT_NEW_ORDER: &str = "INSERT INTO new_orders$0 (no_o_id, no_d_id, no_w_id) VALUES ($1, $2, $3)";
pub const ITEM: &str = "SELECT i_price, i_name, i_data FROM item$0 WHERE i_id = $1";
/// `$3` is the number of a district in two digits: each reads its own column.
pub const LOCK_STOCK: &str = "SELECT s_quantity, s_data, s_dist_$3 s_dist FROM stock$0 \
    WHERE s_i_id = $1 AND s_w_id = $2 FOR UPDATE";
pub const SET_STOCK: &str = "UPDATE stock$0 SET s_quantity = $3 WHERE s_i_id = $1 AND s_w_id = $2";
pub const INSERT_ORDER_LINE: &str = "INSERT INTO order_line$0 \
    (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";

pub const PAY_WAREHOUSE: &str = "UPDATE warehouse$0 SET w_ytd = w_ytd + $2 WHERE w_id = $1";
pub const WAREHOUSE: &str =
    "SELECT w_street_1, w_street_2, w_city, w_state, w_zip, w_name FROM warehouse$0 WHERE w_id = $1";
pub const PAY_DISTRICT: &str = "UPDATE district$0 SET d_ytd = d_ytd + $3 WHERE d_w_id = $1 AND d_id = $2";
pub const DISTRICT: &str = "SELECT d_street_1, d_street_2, d_city, d_state, d_zip, d_name FROM district$0 \
    WHERE d_w_id = $1 AND d_id = $2";
pub const COUNT_BY_NAME: &str = "SELECT count(c_id) namecnt FROM customer$0 \
    WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3";
pub const PAYERS_BY_NAME: &str = "SELECT c_id FROM customer$0 \
    WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first";
pub const LOCK_CUSTOMER: &str = "SELECT c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, \
    c_zip, c_phone, c_credit, c_credit_lim, c_discount, c_balance, c_ytd_payment, c_since FROM customer$0 \
    WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3 FOR UPDATE";
pub const CUSTOMER_DATA: &str = "SELECT c_data FROM customer$0 \
    WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
pub const SET_CUSTOMER_WITH_DATA: &str = "UPDATE customer$0 \
    SET c_balance = $4, c_ytd_payment = $5, c_data = $6 WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
pub const SET_CUSTOMER: &str = "UPDATE customer$0 \
    SET c_balance = $4, c_ytd_payment = $5 WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
pub const INSERT_HISTORY: &str = "INSERT INTO history$0 \
    (h_c_d_id, h_c_w_id, h_c_id, h_d_id, h_w_id, h_date, h_amount, h_data) \
    VALUES ($1, $2, $3, $4, $5, now(), $6, $7)";

pub const ASKERS_BY_NAME: &str = "SELECT c_balance, c_first, c_middle, c_id FROM customer$0 \
    WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first";
pub const CUSTOMER: &str = "SELECT c_balance, c_first, c_middle, c_last FROM customer$0 \
    WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3";
/// Without LIMIT: all orders of the customer are sent, and the first is used.
pub const ORDERS: &str = "SELECT o_id, o_carrier_id, o_entry_d FROM orders$0 \
    WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3 ORDER BY o_id DESC";
pub const ORDER_LINES: &str = "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d \
    FROM order_line$0 WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3";

pub const OLDEST_NEW_ORDER: &str = "SELECT no_o_id FROM new_orders$0 \
    WHERE no_d_id = $2 AND no_w_id = $1 ORDER BY no_o_id ASC LIMIT 1 FOR UPDATE";
pub const DELETE_NEW_ORDER: &str = "DELETE FROM new_orders$0 \
    WHERE no_o_id = $3 AND no_d_id = $2 AND no_w_id = $1";
pub const CUSTOMER_OF_ORDER: &str = "SELECT o_c_id FROM orders$0 \
    WHERE o_id = $3 AND o_d_id = $2 AND o_w_id = $1";
pub const SET_CARRIER: &str = "UPDATE orders$0 SET o_carrier_id = $4 \
    WHERE o_id = $3 AND o_d_id = $2 AND o_w_id = $1";
pub const DATE_LINES: &str = "UPDATE order_line$0 SET ol_delivery_d = now() \
    WHERE ol_o_id = $3 AND ol_d_id = $2 AND ol_w_id = $1";
pub const SUM_LINES: &str = "SELECT sum(ol_amount) sm FROM order_line$0 \
    WHERE ol_o_id = $3 AND ol_d_id = $2 AND ol_w_id = $1";
pub const CHARGE_CUSTOMER: &str = "UPDATE customer$0 \
    SET c_balance = c_balance + $4, c_delivery_cnt = c_delivery_cnt + 1 \
    WHERE c_id = $3 AND c_d_id = $2 AND c_w_id = $1";

pub const NEXT_ORDER: &str = "SELECT d_next_o_id FROM district$0 WHERE d_id = $2 AND d_w_id = $1";
pub const LOW_STOCK: &str = "SELECT count(DISTINCT (s_i_id)) FROM order_line$0, stock$0 \
    WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id < $3 AND ol_o_id >= $4 \
    AND s_w_id = $1 AND s_i_id = ol_i_id AND s_quantity < $5";
