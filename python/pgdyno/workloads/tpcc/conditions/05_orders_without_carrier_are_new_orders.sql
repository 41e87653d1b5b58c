-- Condition 5 (3.3.2.5): O_CARRIER_ID is null if and only if the order has its row in NEW-ORDER.
-- A NEW-ORDER row without its order breaks it too.
WITH violation AS (
    SELECT
        coalesce(o_w_id, no_w_id) AS w_id,
        coalesce(o_d_id, no_d_id) AS d_id,
        coalesce(o_id, no_o_id) AS o_id,
        o_carrier_id,
        no_o_id IS NOT NULL AS is_new_order
    FROM orders
    FULL JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
    WHERE (o_id IS NOT NULL AND o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)
)
SELECT (SELECT count(*) FROM violation) AS violations, violation.*
FROM violation
ORDER BY 2, 3, 4
LIMIT 3
