ALTER TABLE stock
    ADD CONSTRAINT stock_i1 PRIMARY KEY (s_w_id, s_i_id) --[unless hammerdb-schema]
    ADD CONSTRAINT stock_i1 PRIMARY KEY (s_i_id, s_w_id) --[if hammerdb-schema]
