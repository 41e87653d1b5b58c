CREATE INDEX order_line_supply
    ON order_line (ol_supply_w_id, ol_i_id)
