ALTER TABLE stock
    ADD CONSTRAINT stock_warehouse FOREIGN KEY (s_w_id) REFERENCES warehouse (w_id),
    ADD CONSTRAINT stock_item_of FOREIGN KEY (s_i_id) REFERENCES item (i_id)
