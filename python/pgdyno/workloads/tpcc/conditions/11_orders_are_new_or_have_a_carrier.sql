-- Condition 11 (3.3.2.11): orders - new orders = orders with a carrier, for each district.
-- The specification has the number 2100 instead of the last term, which is true only after the load. Each Delivery
-- adds one to both sides, so this form is always true.
WITH violation AS (
    SELECT
        coalesce(o_w_id, no_w_id) AS w_id,
        coalesce(o_d_id, no_d_id) AS d_id,
        orders,
        new_orders,
        orders_with_carrier
    FROM (
        SELECT o_w_id, o_d_id, count(*) AS orders, count(o_carrier_id) AS orders_with_carrier
        FROM orders
        GROUP BY o_w_id, o_d_id
    ) AS district
    FULL JOIN (
        SELECT no_w_id, no_d_id, count(*) AS new_orders
        FROM new_order
        GROUP BY no_w_id, no_d_id
    ) AS new_order ON no_w_id = o_w_id AND no_d_id = o_d_id
    WHERE coalesce(orders, 0) - coalesce(new_orders, 0) <> coalesce(orders_with_carrier, 0)
)
SELECT (SELECT count(*) FROM violation) AS violations, violation.*
FROM violation
ORDER BY 2, 3
LIMIT 3
