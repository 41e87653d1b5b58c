CREATE TABLE {table} (
    transactionid bigserial NOT NULL,
    dateandtime timestamp,
    cashregisterid integer NOT NULL,
    customerid integer NOT NULL,
    productid integer NOT NULL,
    price integer NOT NULL,
    data varchar(4000)
);
COMMENT ON TABLE {table} IS 'made by pgdyno'
