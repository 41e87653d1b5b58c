-- Condition 4 (3.3.2.4): sum(O_OL_CNT) = number of ORDER-LINE rows, for each district.
WITH violation AS (
    SELECT
        coalesce(o_w_id, ol_w_id) AS w_id,
        coalesce(o_d_id, ol_d_id) AS d_id,
        lines_promised,
        lines
    FROM (
        SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS lines_promised
        FROM orders
        GROUP BY o_w_id, o_d_id
    ) AS district
    FULL JOIN (
        SELECT ol_w_id, ol_d_id, count(*) AS lines
        FROM order_line
        GROUP BY ol_w_id, ol_d_id
    ) AS line ON ol_w_id = o_w_id AND ol_d_id = o_d_id
    WHERE lines_promised IS DISTINCT FROM lines
)
SELECT (SELECT count(*) FROM violation) AS violations, violation.*
FROM violation
ORDER BY 2, 3
LIMIT 3
