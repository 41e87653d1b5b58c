CREATE TABLE stock$0 (
    s_i_id       integer NOT NULL,
    s_w_id       smallint NOT NULL,
    s_quantity   smallint,
    s_dist_01    char(24),
    s_dist_02    char(24),
    s_dist_03    char(24),
    s_dist_04    char(24),
    s_dist_05    char(24),
    s_dist_06    char(24),
    s_dist_07    char(24),
    s_dist_08    char(24),
    s_dist_09    char(24),
    s_dist_10    char(24),
    s_ytd        numeric(8,0),
    s_order_cnt  smallint,
    s_remote_cnt smallint,
    s_data       varchar(50)
)
