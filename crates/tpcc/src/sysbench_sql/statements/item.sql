SELECT i_price, i_name, i_data FROM item$0 WHERE i_id = $1
