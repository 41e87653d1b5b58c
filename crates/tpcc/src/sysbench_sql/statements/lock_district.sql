SELECT d_next_o_id, d_tax FROM district$0 WHERE d_w_id = $1 AND d_id = $2 FOR UPDATE
