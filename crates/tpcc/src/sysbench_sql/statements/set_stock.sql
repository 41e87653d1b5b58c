UPDATE stock$0 SET s_quantity = $3 WHERE s_i_id = $1 AND s_w_id = $2
