ALTER TABLE district
    ADD CONSTRAINT district_warehouse FOREIGN KEY (d_w_id) REFERENCES warehouse (w_id)
