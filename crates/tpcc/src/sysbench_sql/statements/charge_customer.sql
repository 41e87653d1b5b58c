UPDATE customer$0 SET c_balance = c_balance + $4, c_delivery_cnt = c_delivery_cnt + 1 WHERE c_id = $3 AND c_d_id = $2 AND c_w_id = $1
