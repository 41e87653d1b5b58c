-- Condition 3 (3.3.2.3): max(NO_O_ID) - min(NO_O_ID) + 1 = number of NEW-ORDER rows, for each district.
-- A district without new orders has no group here, which is how the condition skips it.
WITH violation AS (
    SELECT no_w_id, no_d_id, first_new_order, last_new_order, new_orders
    FROM (
        SELECT
            no_w_id,
            no_d_id,
            min(no_o_id) AS first_new_order,
            max(no_o_id) AS last_new_order,
            count(*) AS new_orders
        FROM new_order
        GROUP BY no_w_id, no_d_id
    ) AS district
    WHERE last_new_order - first_new_order + 1 <> new_orders
)
SELECT (SELECT count(*) FROM violation) AS violations, violation.*
FROM violation
ORDER BY 2, 3
LIMIT 3
