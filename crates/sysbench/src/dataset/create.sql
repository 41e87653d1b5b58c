CREATE TABLE sbtest{n} (
    id {id_type} NOT NULL,
    k integer NOT NULL DEFAULT 0,
    c char(120) NOT NULL DEFAULT '',
    pad char(60) NOT NULL DEFAULT ''
);
COMMENT ON TABLE sbtest{n} IS 'made by pgdyno'
