CREATE INDEX stock_item
    ON stock (s_i_id)
