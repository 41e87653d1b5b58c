ALTER TABLE warehouse
    ADD CONSTRAINT warehouse_i1 PRIMARY KEY (w_id)
