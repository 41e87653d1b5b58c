-- Condition 10 (3.3.2.10): C_BALANCE = sum(OL_AMOUNT of the customer's delivered lines) - sum(H_AMOUNT of the customer).
-- Lines of amount 0 do not change a sum. Without them the delivered orders of the load, seven in ten, need no join.
WITH violation AS (
    SELECT c_w_id, c_d_id, c_id, c_balance, delivered, paid
    FROM customer
    LEFT JOIN (
        SELECT o_w_id, o_d_id, o_c_id, sum(order_amount) AS delivered
        FROM (
            SELECT ol_w_id, ol_d_id, ol_o_id, sum(ol_amount) AS order_amount
            FROM order_line
            WHERE ol_delivery_d IS NOT NULL AND ol_amount <> 0
            GROUP BY ol_w_id, ol_d_id, ol_o_id
        ) AS line
        JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id
        GROUP BY o_w_id, o_d_id, o_c_id
    ) AS delivery ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id
    LEFT JOIN (
        SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid
        FROM history
        GROUP BY h_c_w_id, h_c_d_id, h_c_id
    ) AS payment ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id
    WHERE c_balance <> coalesce(delivered, 0) - coalesce(paid, 0)
)
SELECT (SELECT count(*) FROM violation) AS violations, violation.*
FROM violation
ORDER BY 2, 3, 4
LIMIT 3
