CREATE INDEX history_district_index
    ON history (h_w_id, h_d_id)
