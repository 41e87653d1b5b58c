CREATE TABLE warehouse (
    w_id       integer NOT NULL,
    w_name     varchar(10) NOT NULL,
    w_street_1 varchar(20) NOT NULL,
    w_street_2 varchar(20) NOT NULL,
    w_city     varchar(20) NOT NULL,
    w_state    char(2) NOT NULL,
    w_zip      char(9) NOT NULL,
    w_tax      numeric(4,4) NOT NULL,
    w_ytd      numeric(12,2) NOT NULL --[unless hammerdb-schema]
    w_ytd      numeric(16,2) NOT NULL --[if hammerdb-schema]
)
