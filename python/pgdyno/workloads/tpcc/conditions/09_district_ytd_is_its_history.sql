-- Condition 9 (3.3.2.9): D_YTD = sum(H_AMOUNT), for each district.
WITH violation AS (
    SELECT
        coalesce(d_w_id, h_w_id) AS w_id,
        coalesce(d_id, h_d_id) AS d_id,
        d_ytd,
        history_amount
    FROM district
    FULL JOIN (
        SELECT h_w_id, h_d_id, sum(h_amount) AS history_amount
        FROM history
        GROUP BY h_w_id, h_d_id
    ) AS history ON h_w_id = d_w_id AND h_d_id = d_id
    WHERE d_ytd IS DISTINCT FROM history_amount
)
SELECT (SELECT count(*) FROM violation) AS violations, violation.*
FROM violation
ORDER BY 2, 3
LIMIT 3
