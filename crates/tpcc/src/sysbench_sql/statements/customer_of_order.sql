SELECT o_c_id FROM orders$0 WHERE o_id = $3 AND o_d_id = $2 AND o_w_id = $1
