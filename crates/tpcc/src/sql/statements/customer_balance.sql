SELECT c_first, c_middle, c_last, c_balance
  FROM customer
 WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3
