CREATE TABLE warehouse$0 (
    w_id       smallint NOT NULL,
    w_name     varchar(10),
    w_street_1 varchar(20),
    w_street_2 varchar(20),
    w_city     varchar(20),
    w_state    char(2),
    w_zip      char(9),
    w_tax      numeric(4,2),
    w_ytd      numeric(12,2)
)
