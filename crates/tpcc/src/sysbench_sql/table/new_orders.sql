CREATE TABLE new_orders$0 (
    no_o_id integer NOT NULL,
    no_d_id smallint NOT NULL,
    no_w_id smallint NOT NULL
)
