SELECT d_next_o_id FROM district$0 WHERE d_id = $2 AND d_w_id = $1
