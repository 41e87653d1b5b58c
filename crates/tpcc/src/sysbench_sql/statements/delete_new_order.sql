DELETE FROM new_orders$0 WHERE no_o_id = $3 AND no_d_id = $2 AND no_w_id = $1
