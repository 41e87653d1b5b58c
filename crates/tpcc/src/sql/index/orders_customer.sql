CREATE UNIQUE INDEX orders_i2
    ON orders (o_w_id, o_d_id, o_c_id, o_id)
