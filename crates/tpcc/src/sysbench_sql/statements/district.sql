SELECT d_street_1, d_street_2, d_city, d_state, d_zip, d_name FROM district$0 WHERE d_w_id = $1 AND d_id = $2
