CREATE TABLE item$0 (
    i_id    integer NOT NULL,
    i_im_id integer,
    i_name  varchar(24),
    i_price numeric(5,2),
    i_data  varchar(50)
)
