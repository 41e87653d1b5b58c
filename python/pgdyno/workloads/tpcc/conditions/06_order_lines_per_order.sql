-- Condition 6 (3.3.2.6): O_OL_CNT = number of ORDER-LINE rows, for each order.
-- Lines without their order break it too.
WITH violation AS (
    SELECT
        coalesce(o_w_id, ol_w_id) AS w_id,
        coalesce(o_d_id, ol_d_id) AS d_id,
        coalesce(o_id, ol_o_id) AS o_id,
        o_ol_cnt,
        lines
    FROM orders
    FULL JOIN (
        SELECT ol_w_id, ol_d_id, ol_o_id, count(*) AS lines
        FROM order_line
        GROUP BY ol_w_id, ol_d_id, ol_o_id
    ) AS line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
    WHERE o_ol_cnt IS DISTINCT FROM lines
)
SELECT (SELECT count(*) FROM violation) AS violations, violation.*
FROM violation
ORDER BY 2, 3, 4
LIMIT 3
