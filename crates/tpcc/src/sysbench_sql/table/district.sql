CREATE TABLE district$0 (
    d_id        smallint NOT NULL,
    d_w_id      smallint NOT NULL,
    d_name      varchar(10),
    d_street_1  varchar(20),
    d_street_2  varchar(20),
    d_city      varchar(20),
    d_state     char(2),
    d_zip       char(9),
    d_tax       numeric(4,2),
    d_ytd       numeric(12,2),
    d_next_o_id integer
)
