UPDATE customer$0 SET c_balance = $4, c_ytd_payment = $5 WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3
