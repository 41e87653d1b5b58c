CREATE UNIQUE INDEX customer_i2
    ON customer (c_w_id, c_d_id, c_last, c_first, c_id)
