CREATE TABLE counttable (
    id bigint NOT NULL DEFAULT 0,
    link_type bigint NOT NULL DEFAULT 0,
    count bigint NOT NULL DEFAULT 0,
    time bigint NOT NULL DEFAULT 0,
    version bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE counttable IS 'made by pgdyno'
