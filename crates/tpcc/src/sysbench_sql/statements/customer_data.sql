SELECT c_data FROM customer$0 WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3
