CREATE INDEX history_customer_index
    ON history (h_c_w_id, h_c_d_id, h_c_id)
