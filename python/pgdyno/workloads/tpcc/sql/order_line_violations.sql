-- Conditions that read ORDER-LINE, by number: false if satisfied. For true or null, run the statement of the condition.
-- A damaged index can admit an order twice. 6 does not find it, so 4 does not follow from 6.
WITH line AS (
    SELECT
        ol_w_id,
        ol_d_id,
        ol_o_id,
        count(*) AS lines,
        count(ol_delivery_d) AS dated,
        sum(ol_amount) FILTER (WHERE ol_delivery_d IS NOT NULL AND ol_amount <> 0) AS delivered
    FROM order_line
    GROUP BY ol_w_id, ol_d_id, ol_o_id
),
of_districts AS (
    SELECT bool_or(lines_promised IS DISTINCT FROM lines) AS sums_differ
    FROM (
        SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS lines_promised
        FROM orders
        GROUP BY o_w_id, o_d_id
    ) AS district
    FULL JOIN (
        SELECT ol_w_id, ol_d_id, sum(lines) AS lines
        FROM line
        GROUP BY ol_w_id, ol_d_id
    ) AS lines_found ON ol_w_id = o_w_id AND ol_d_id = o_d_id
),
filled AS (
    SELECT o_w_id, o_d_id, o_c_id, o_carrier_id, o_ol_cnt, lines, dated, delivered
    FROM orders
    FULL JOIN line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
),
of_orders AS (
    SELECT
        bool_or(o_ol_cnt IS DISTINCT FROM lines) AS lines_differ,
        bool_or(dated <> CASE WHEN o_carrier_id IS NULL THEN 0 ELSE lines END) AS dates_differ
    FROM filled
),
of_customers AS (
    SELECT
        bool_or(c_balance <> coalesce(delivered, 0) - coalesce(paid, 0)) AS balance_differs,
        bool_or(c_balance + c_ytd_payment <> coalesce(delivered, 0)) AS payments_differ
    FROM customer
    LEFT JOIN (
        SELECT o_w_id, o_d_id, o_c_id, sum(delivered) AS delivered
        FROM filled
        WHERE delivered IS NOT NULL
        GROUP BY o_w_id, o_d_id, o_c_id
    ) AS delivery ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id
    LEFT JOIN (
        SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid
        FROM history
        GROUP BY h_c_w_id, h_c_d_id, h_c_id
    ) AS payment ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id
)
SELECT
    sums_differ AS "4",
    lines_differ AS "6",
    dates_differ AS "7",
    balance_differs AS "10",
    payments_differ AS "12"
FROM of_districts, of_orders, of_customers
