INSERT INTO new_orders$0 (no_o_id, no_d_id, no_w_id) VALUES ($1, $2, $3)
