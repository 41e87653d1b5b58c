CREATE TABLE orders (
    o_entry_d    timestamptz NOT NULL,
    o_id         integer NOT NULL,
    o_w_id       integer NOT NULL,
    o_c_id       integer NOT NULL,
    o_d_id       smallint NOT NULL,
    o_carrier_id smallint,
    o_ol_cnt     smallint NOT NULL,
    o_all_local  smallint NOT NULL
)
