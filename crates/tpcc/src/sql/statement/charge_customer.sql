UPDATE customer
   SET c_balance = c_balance + $4::numeric,
       c_delivery_cnt = c_delivery_cnt + 1
 WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3
