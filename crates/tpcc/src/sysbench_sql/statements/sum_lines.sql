SELECT sum(ol_amount) sm FROM order_line$0 WHERE ol_o_id = $3 AND ol_d_id = $2 AND ol_w_id = $1
