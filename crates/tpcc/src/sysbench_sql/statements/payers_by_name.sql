SELECT c_id FROM customer$0 WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first
