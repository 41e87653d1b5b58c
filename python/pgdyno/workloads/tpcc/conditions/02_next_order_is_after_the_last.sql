-- Condition 2 (3.3.2.2): D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID), for each district.
-- The new-order part does not count where the district has none. Both maxima are single probes of a primary key.
WITH violation AS (
    SELECT d_w_id, d_id, d_next_o_id, last_order, last_new_order
    FROM (
        SELECT
            d_w_id,
            d_id,
            d_next_o_id,
            (SELECT max(o_id) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id) AS last_order,
            (SELECT max(no_o_id) FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id) AS last_new_order
        FROM district
    ) AS district
    WHERE d_next_o_id - 1 IS DISTINCT FROM last_order
        OR d_next_o_id - 1 <> last_new_order
)
SELECT (SELECT count(*) FROM violation) AS violations, violation.*
FROM violation
ORDER BY 2, 3
LIMIT 3
