SELECT count(DISTINCT s_i_id)
  FROM order_line
  JOIN stock ON s_w_id = $1 AND s_i_id = ol_i_id
 WHERE ol_w_id = $1 AND ol_d_id = $2
   AND ol_o_id >= $3::integer - 20 AND ol_o_id < $3::integer
   AND s_quantity < $4::smallint
