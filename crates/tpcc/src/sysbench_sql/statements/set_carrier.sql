UPDATE orders$0 SET o_carrier_id = $4 WHERE o_id = $3 AND o_d_id = $2 AND o_w_id = $1
