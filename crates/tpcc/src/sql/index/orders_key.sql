ALTER TABLE orders
    ADD CONSTRAINT orders_i1 PRIMARY KEY (o_w_id, o_d_id, o_id)
