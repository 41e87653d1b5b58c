ALTER TABLE customer
    ADD CONSTRAINT customer_i1 PRIMARY KEY (c_w_id, c_d_id, c_id)
