CREATE TABLE orders$0 (
    o_id         integer NOT NULL,
    o_d_id       smallint NOT NULL,
    o_w_id       smallint NOT NULL,
    o_c_id       integer,
    o_entry_d    timestamp,
    o_carrier_id smallint,
    o_ol_cnt     smallint,
    o_all_local  smallint
)
