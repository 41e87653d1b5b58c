SELECT no_o_id FROM new_orders$0 WHERE no_d_id = $2 AND no_w_id = $1 ORDER BY no_o_id ASC LIMIT 1 FOR UPDATE
