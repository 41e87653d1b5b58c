UPDATE customer
   SET c_balance = c_balance + $4::numeric, --[unless delivery-count-not-updated]
       c_delivery_cnt = c_delivery_cnt + 1 --[unless delivery-count-not-updated]
   SET c_balance = c_balance + $4::numeric --[if delivery-count-not-updated]
 WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3
