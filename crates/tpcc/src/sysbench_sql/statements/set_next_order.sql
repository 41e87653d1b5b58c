UPDATE district$0 SET d_next_o_id = $3 WHERE d_id = $2 AND d_w_id = $1
