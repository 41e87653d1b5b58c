-- Condition 1 (3.3.2.1): W_YTD = sum(D_YTD), for each warehouse.
-- A district without its warehouse, or the reverse, breaks it too.
WITH violation AS (
    SELECT coalesce(w_id, d_w_id) AS w_id, w_ytd, districts_ytd
    FROM warehouse
    FULL JOIN (
        SELECT d_w_id, sum(d_ytd) AS districts_ytd
        FROM district
        GROUP BY d_w_id
    ) AS district ON d_w_id = w_id
    WHERE w_ytd IS DISTINCT FROM districts_ytd
)
SELECT (SELECT count(*) FROM violation) AS violations, violation.*
FROM violation
ORDER BY 2
LIMIT 3
