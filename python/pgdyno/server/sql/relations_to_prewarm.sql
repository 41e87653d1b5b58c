-- All relations of this database with blocks: tables, indexes, TOAST, materialized views. The largest first: if the
-- cache cannot hold all of them, it evicts blocks of large relations and keeps the small, frequently used ones.
SELECT c.oid::int8 AS oid,
       c.oid::regclass::text AS name,
       c.relkind::text AS kind,
       pg_relation_filepath(c.oid) AS path,
       pg_relation_size(c.oid)::int8 AS size_bytes,
       has_table_privilege(c.oid, 'select') AS is_readable
FROM pg_class c
WHERE c.relkind IN ('r', 'i', 't', 'm')
  AND c.relpersistence <> 't'
  AND pg_relation_size(c.oid) > 0
ORDER BY size_bytes DESC, c.oid
