ALTER TABLE history
    ADD CONSTRAINT history_customer FOREIGN KEY (h_c_w_id, h_c_d_id, h_c_id) REFERENCES customer (c_w_id, c_d_id, c_id),
    ADD CONSTRAINT history_district FOREIGN KEY (h_w_id, h_d_id) REFERENCES district (d_w_id, d_id)
