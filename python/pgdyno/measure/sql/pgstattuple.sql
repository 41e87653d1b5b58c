-- Live, dead and free space of the {rows_max} largest user tables and B-tree indexes of the current database: bytes, rows,
-- percent. A relation of up to {exact_bytes_max} bytes is read completely (exact 1); a larger table is estimated with its
-- visibility map (exact 0), a larger index is excluded.
WITH /* pgdyno probe */ relations AS (
    SELECT
        c.oid,
        c.relkind,
        n.nspname::text AS schema,
        c.relname::text AS name,
        pg_relation_size(c.oid) AS bytes
    FROM pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    LEFT JOIN pg_am AS a ON a.oid = c.relam
    WHERE c.relpersistence <> 't'
      AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\_toast%'
      AND (c.relkind IN ('r', 'm') AND coalesce(a.amname, 'heap') = 'heap'
           OR c.relkind = 'i' AND a.amname = 'btree' AND EXISTS (
               SELECT FROM pg_index WHERE indexrelid = c.oid AND indisvalid))
), listed AS (
    SELECT *
    FROM relations
    WHERE bytes IS NOT NULL
    ORDER BY bytes DESC, oid
    LIMIT {rows_max}
)
SELECT
    CASE r.relkind WHEN 'i' THEN 'index' WHEN 'm' THEN 'materialized view' ELSE 'table' END AS kind,
    r.schema,
    r.name,
    r.bytes,
    CASE WHEN approximate.table_len IS NULL THEN 1 ELSE 0 END AS exact,
    coalesce(exact.tuple_count, approximate.approx_tuple_count::bigint) AS tuple_count,
    coalesce(exact.tuple_len, approximate.approx_tuple_len::bigint) AS tuple_bytes,
    coalesce(exact.tuple_percent, approximate.approx_tuple_percent) AS tuple_percent,
    coalesce(exact.dead_tuple_count, approximate.dead_tuple_count) AS dead_tuple_count,
    coalesce(exact.dead_tuple_len, approximate.dead_tuple_len) AS dead_tuple_bytes,
    coalesce(exact.dead_tuple_percent, approximate.dead_tuple_percent) AS dead_tuple_percent,
    coalesce(exact.free_space, approximate.approx_free_space::bigint) AS free_bytes,
    coalesce(exact.free_percent, approximate.approx_free_percent) AS free_percent,
    index.tree_level,
    index.leaf_pages,
    index.empty_pages,
    index.deleted_pages,
    nullif(index.avg_leaf_density, 'NaN') AS avg_leaf_density,
    nullif(index.leaf_fragmentation, 'NaN') AS leaf_fragmentation
FROM listed AS r
LEFT JOIN LATERAL {extension}.pgstattuple(
    CASE WHEN r.relkind <> 'i' AND r.bytes <= {exact_bytes_max} THEN r.oid::regclass END) AS exact ON true
LEFT JOIN LATERAL {extension}.pgstattuple_approx(
    CASE WHEN r.relkind <> 'i' AND r.bytes > {exact_bytes_max} THEN r.oid::regclass END) AS approximate ON true
LEFT JOIN LATERAL {extension}.pgstatindex(
    CASE WHEN r.relkind = 'i' AND r.bytes <= {exact_bytes_max} THEN r.oid::regclass END) AS index ON true
WHERE r.relkind <> 'i' OR r.bytes <= {exact_bytes_max}
ORDER BY r.bytes DESC, r.oid
