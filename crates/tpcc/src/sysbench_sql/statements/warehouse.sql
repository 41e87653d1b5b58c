SELECT w_street_1, w_street_2, w_city, w_state, w_zip, w_name FROM warehouse$0 WHERE w_id = $1
