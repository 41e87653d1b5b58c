SELECT c_last, c_credit, c_discount, w_tax
  FROM warehouse, customer
 WHERE w_id = $1 AND c_w_id = $1 AND c_d_id = $2 AND c_id = $3
