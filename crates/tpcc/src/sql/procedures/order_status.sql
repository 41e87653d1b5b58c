-- The Order-Status transaction (clause 2.6), one call a transaction: a customer's last order and its lines.
CREATE OR REPLACE FUNCTION tpcc_order_status(
    IN  home_w_id        integer,
    IN  home_d_id        smallint,
    IN  customer_id      integer,
    IN  customer_name    varchar,
    OUT found_c_id       integer,
    OUT customer_first   varchar,
    OUT customer_middle  char,
    OUT customer_last    varchar,
    OUT customer_balance numeric,
    OUT order_id         integer,
    OUT entered_at       timestamptz,
    OUT carrier          smallint,
    OUT item_ids         integer[],
    OUT supply_w_ids     integer[],
    OUT quantities       smallint[],
    OUT amounts          numeric[],
    OUT delivered_at     timestamptz[]
)
LANGUAGE plpgsql
AS $$
BEGIN
    found_c_id := coalesce(customer_id, tpcc_customer_by_name(home_w_id, home_d_id, customer_name)); --[unless literal-last-name]
    found_c_id := CASE WHEN customer_name IS NULL THEN customer_id --[if literal-last-name]
                       ELSE tpcc_customer_by_name(home_w_id, home_d_id, customer_name) END; --[if literal-last-name]
    IF found_c_id IS NULL THEN --[if literal-last-name]
        RETURN; --[if literal-last-name]
    END IF; --[if literal-last-name]

    SELECT c_first, c_middle, c_last, c_balance
      INTO STRICT customer_first, customer_middle, customer_last, customer_balance
      FROM customer
     WHERE c_w_id = home_w_id AND c_d_id = home_d_id AND c_id = found_c_id;

    SELECT o_id, o_entry_d, o_carrier_id
      INTO order_id, entered_at, carrier
      FROM orders
     WHERE o_w_id = home_w_id AND o_d_id = home_d_id AND o_c_id = found_c_id
     ORDER BY o_id DESC
     LIMIT 1;

    SELECT array_agg(ol_i_id), array_agg(ol_supply_w_id), array_agg(ol_quantity), array_agg(ol_amount),
           array_agg(ol_delivery_d)
      INTO item_ids, supply_w_ids, quantities, amounts, delivered_at
      FROM order_line
     WHERE ol_w_id = home_w_id AND ol_d_id = home_d_id AND ol_o_id = order_id; --[unless order-status-of-district]
     WHERE ol_w_id = home_w_id AND ol_d_id = home_d_id AND ol_o_id = home_d_id; --[if order-status-of-district]
EXCEPTION --[if subtransactions]
    WHEN serialization_failure OR deadlock_detected OR no_data_found THEN --[if subtransactions]
        RAISE; --[if subtransactions]
END
$$
