-- Unique keys of the tables with these schemas and names, and of their partitions: one row per column of a key.
WITH /* pgdyno probe */ RECURSIVE members AS (
    SELECT named.place, c.oid AS relid
    FROM unnest({schemas}::text[], {names}::text[]) WITH ORDINALITY AS named (schema, name, place)
    JOIN pg_class AS c ON c.relname = named.name
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
        AND CASE named.schema WHEN '' THEN pg_table_is_visible(c.oid) ELSE n.nspname = named.schema END
    UNION
    SELECT members.place, pg_inherits.inhrelid
    FROM members
    JOIN pg_inherits ON pg_inherits.inhparent = members.relid
)
SELECT
    members.place,
    i.indexrelid::int8 AS key,
    a.attname::text AS column_name
FROM members
JOIN pg_index AS i ON i.indrelid = members.relid AND i.indisunique AND 0 <> ALL (i.indkey::int2[])
JOIN pg_attribute AS a ON a.attrelid = members.relid
    AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])  -- from 11: without INCLUDE
    AND a.attnum = ANY (i.indkey::int2[])  -- to 10
ORDER BY members.place, i.indexrelid, a.attnum
