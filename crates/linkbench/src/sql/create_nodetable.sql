CREATE TABLE nodetable (
    id bigserial NOT NULL,
    type integer NOT NULL DEFAULT 0,
    version bigint NOT NULL DEFAULT 0,
    time integer NOT NULL DEFAULT 0,
    data bytea NOT NULL DEFAULT ''
);
COMMENT ON TABLE nodetable IS 'made by pgdyno'
