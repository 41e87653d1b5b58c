SELECT d_next_o_id
  FROM district
 WHERE d_w_id = $1 AND d_id = $2
