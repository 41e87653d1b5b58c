CREATE TABLE order_line (
    ol_delivery_d  timestamptz,
    ol_o_id        integer NOT NULL,
    ol_w_id        integer NOT NULL,
    ol_i_id        integer NOT NULL,
    ol_supply_w_id integer NOT NULL,
    ol_d_id        smallint NOT NULL,
    ol_number      smallint NOT NULL,
    ol_quantity    smallint NOT NULL,
    ol_amount      numeric(6,2),
    ol_dist_info   char(24)
)
