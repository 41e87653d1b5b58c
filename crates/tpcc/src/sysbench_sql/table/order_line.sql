CREATE TABLE order_line$0 (
    ol_o_id        integer NOT NULL,
    ol_d_id        smallint NOT NULL,
    ol_w_id        smallint NOT NULL,
    ol_number      smallint NOT NULL,
    ol_i_id        integer,
    ol_supply_w_id smallint,
    ol_delivery_d  timestamp,
    ol_quantity    smallint,
    ol_amount      numeric(6,2),
    ol_dist_info   char(24)
)
