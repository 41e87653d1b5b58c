CREATE TABLE linktable (
    id1 bigint NOT NULL DEFAULT 0,
    id2 bigint NOT NULL DEFAULT 0,
    link_type bigint NOT NULL DEFAULT 0,
    visibility smallint NOT NULL DEFAULT 0,
    data bytea NOT NULL DEFAULT '',
    time bigint NOT NULL DEFAULT 0,
    version integer NOT NULL DEFAULT 0
);
COMMENT ON TABLE linktable IS 'made by pgdyno'
