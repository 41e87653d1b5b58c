ALTER TABLE district
    ADD CONSTRAINT district_i1 PRIMARY KEY (d_w_id, d_id)
