-- Everything of this database that has blocks: tables, indexes, TOAST, materialised views. The largest first:
-- where a cache cannot hold them all, it is their beginning that it loses, not what is small and used all the time.
SELECT c.oid::int8,
       c.oid::regclass::text AS name,
       c.relkind::text,
       pg_relation_filepath(c.oid) AS path,
       pg_relation_size(c.oid)::int8 AS size_bytes
FROM pg_class c
WHERE c.relkind IN ('r', 'i', 't', 'm')
  AND c.relpersistence <> 't'
  AND pg_relation_size(c.oid) > 0
ORDER BY size_bytes DESC, c.oid
