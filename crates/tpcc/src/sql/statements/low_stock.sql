SELECT count(DISTINCT s_i_id)
  FROM order_line
  JOIN stock ON s_w_id = $1 AND s_i_id = ol_i_id
 WHERE ol_w_id = $1 AND ol_d_id = $2
   AND ol_o_id = ANY (ARRAY(
           SELECT generate_series(d_next_o_id - 20, d_next_o_id - 1)
             FROM district
            WHERE d_w_id = $1 AND d_id = $2
       ))
   AND s_quantity < $3
