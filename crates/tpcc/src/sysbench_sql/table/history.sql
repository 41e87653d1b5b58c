CREATE TABLE history$0 (
    h_c_id   integer,
    h_c_d_id smallint,
    h_c_w_id smallint,
    h_d_id   smallint,
    h_w_id   smallint,
    h_date   timestamp,
    h_amount numeric(6,2),
    h_data   varchar(24)
)
