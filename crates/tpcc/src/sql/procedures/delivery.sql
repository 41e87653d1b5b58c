-- The Delivery transaction (clause 2.7): the oldest new order of each district, in one database transaction.
-- Two deliveries of one warehouse must not choose the same orders. They take turns by a lock of their own, which
-- nobody else waits for; the statement after it sees what the delivery before committed. Under repeatable read the
-- snapshot is older than the lock, and the DELETE then fails as a serialization failure, to be retried.
-- The districts are a list of values, whose length the planner knows: before version 12 it took generate_series for a
-- thousand rows, and would read all of order_line instead of ten orders.
CREATE OR REPLACE FUNCTION tpcc_delivery(
    IN  home_w_id integer,
    IN  carrier   smallint,
    OUT districts smallint[],
    OUT order_ids integer[]
)
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1346847556, home_w_id);

    WITH oldest AS (
        SELECT d_id,
               (SELECT no_o_id
                  FROM new_order
                 WHERE no_w_id = home_w_id AND no_d_id = d_id
                 ORDER BY no_o_id
                 LIMIT 1) AS o_id
          FROM (VALUES (1::smallint), (2), (3), (4), (5), (6), (7), (8), (9), (10)) AS district (d_id)
    ), taken AS (
        DELETE FROM new_order
         USING oldest
         WHERE no_w_id = home_w_id AND no_d_id = oldest.d_id AND no_o_id = oldest.o_id
        RETURNING no_d_id, no_o_id
    ), delivered AS (
        UPDATE orders
           SET o_carrier_id = carrier
          FROM taken
         WHERE o_w_id = home_w_id AND o_d_id = no_d_id AND o_id = no_o_id
        RETURNING o_d_id, o_id, o_c_id
    ), line AS (
        UPDATE order_line
           SET ol_delivery_d = current_timestamp
          FROM taken
         WHERE ol_w_id = home_w_id AND ol_d_id = no_d_id AND ol_o_id = no_o_id
        RETURNING ol_d_id, ol_amount
    ), owed AS (
        SELECT ol_d_id, sum(ol_amount) AS amount
          FROM line
         GROUP BY ol_d_id
    ), charged AS (
        UPDATE customer
           SET c_balance = c_balance + owed.amount, --[unless delivery-count-not-updated]
               c_delivery_cnt = c_delivery_cnt + 1 --[unless delivery-count-not-updated]
           SET c_balance = c_balance + owed.amount --[if delivery-count-not-updated]
          FROM delivered
          JOIN owed ON ol_d_id = o_d_id
         WHERE c_w_id = home_w_id AND c_d_id = o_d_id AND c_id = o_c_id
    )
    SELECT array_agg(o_d_id), array_agg(o_id)
      INTO districts, order_ids
      FROM delivered;
EXCEPTION --[if subtransactions]
    WHEN serialization_failure OR deadlock_detected OR no_data_found THEN --[if subtransactions]
        RAISE; --[if subtransactions]
END
$$
