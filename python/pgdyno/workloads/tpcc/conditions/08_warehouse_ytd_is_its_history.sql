-- Condition 8 (3.3.2.8): W_YTD = sum(H_AMOUNT), for each warehouse.
WITH violation AS (
    SELECT coalesce(w_id, h_w_id) AS w_id, w_ytd, history_amount
    FROM warehouse
    FULL JOIN (
        SELECT h_w_id, sum(h_amount) AS history_amount
        FROM history
        GROUP BY h_w_id
    ) AS history ON h_w_id = w_id
    WHERE w_ytd IS DISTINCT FROM history_amount
)
SELECT (SELECT count(*) FROM violation) AS violations, violation.*
FROM violation
ORDER BY 2
LIMIT 3
