-- Columns of the tables with these schemas and names, and how their values are distributed. Without a schema the search path applies.
-- to_regclass is not used: it fails in a schema without the privilege USAGE.
-- The last three columns are NULL without ANALYZE, or without the privilege to read the table. No value of a row is read.
SELECT /* pgdyno probe */
    named.place,
    format('%I.%I', n.nspname, c.relname) AS table_name,
    (n.nspname IN ('pg_catalog', 'information_schema', 'pg_toast')) AS is_system,
    (c.relkind = 'r' AND c.relpages = 0 AND pg_relation_size(c.oid) = 0) AS is_empty,
    EXISTS (
        SELECT FROM pg_constraint AS k
        WHERE k.confrelid = c.oid AND k.contype = 'f' AND k.confdeltype IN ('a', 'r')) AS is_referenced,
    a.attname::text AS name,
    format('%I', a.attname) AS quoted,
    format_type(a.atttypid, a.atttypmod) AS type,
    format_type(a.atttypid, NULL) AS base_type,
    (a.atthasdef OR a.attidentity <> '') AS has_default,
    EXISTS (
        SELECT FROM pg_constraint AS k
        WHERE k.conrelid = c.oid AND k.contype = 'f' AND a.attnum = ANY (k.conkey)) AS in_foreign_key,
    s.null_frac::float8 AS null_fraction,
    CASE WHEN s.null_frac IS NOT NULL THEN (s.most_common_freqs IS NOT NULL) END AS has_common_values,
    CASE
        WHEN s.bounds ~* 'inf|nan|bc' THEN NULL
        WHEN a.atttypid::regtype::text IN ('smallint', 'integer', 'bigint', 'numeric', 'real', 'double precision')
            THEN (s.bounds::numeric[])[array_upper(s.bounds::numeric[], 1)]::float8 - (s.bounds::numeric[])[1]::float8
        WHEN a.atttypid::regtype::text IN ('date', 'timestamp without time zone', 'timestamp with time zone')
            THEN extract(epoch FROM (s.bounds::timestamptz[])[array_upper(s.bounds::timestamptz[], 1)]
                - (s.bounds::timestamptz[])[1])::float8
                / CASE WHEN a.atttypid::regtype::text = 'date' THEN 86400 ELSE 1 END
    END AS width
FROM unnest({schemas}::text[], {names}::text[]) WITH ORDINALITY AS named (schema, name, place)
JOIN pg_class AS c ON c.relname = named.name AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
JOIN pg_namespace AS n ON n.oid = c.relnamespace
    AND CASE named.schema WHEN '' THEN pg_table_is_visible(c.oid) ELSE n.nspname = named.schema END
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN (
    SELECT *, histogram_bounds::text AS bounds FROM pg_stats
) AS s ON s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = a.attname
    AND s.inherited = (c.relkind = 'p')
ORDER BY named.place, a.attnum
