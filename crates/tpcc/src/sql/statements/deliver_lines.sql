WITH line AS (
    UPDATE order_line
       SET ol_delivery_d = current_timestamp
     WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3
    RETURNING ol_amount
)
SELECT sum(ol_amount)
  FROM line
