SELECT s_quantity, s_data, s_dist_$3 s_dist FROM stock$0 WHERE s_i_id = $1 AND s_w_id = $2 FOR UPDATE
