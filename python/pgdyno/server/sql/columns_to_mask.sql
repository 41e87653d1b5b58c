-- Columns of all tables that a dump contains, with what decides whether they can be masked.
-- to_jsonb: columns of catalogs that older versions do not have.
WITH RECURSIVE ancestor (relid, parent) AS (
    SELECT inhrelid, inhparent FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid WHERE relispartition
    UNION ALL
    SELECT ancestor.relid, inhparent FROM ancestor JOIN pg_inherits ON inhrelid = ancestor.parent
    JOIN pg_class ON pg_class.oid = inhrelid WHERE relispartition
)
SELECT t.oid::bigint, a.attnum::int, n.nspname, t.relname, a.attname, t.relkind = 'r',
    coalesce(b.typname, y.typname),
    CASE WHEN coalesce(b.typname, y.typname) IN ('varchar', 'bpchar')
        THEN nullif(CASE WHEN b.oid IS NULL THEN a.atttypmod ELSE y.typtypmod END, -1) - 4 END,
    a.attnotnull OR y.typnotnull,
    coalesce(to_jsonb(a) ->> 'attgenerated', '') <> '',
    EXISTS (
        SELECT FROM ancestor JOIN pg_partitioned_table AS p ON p.partrelid = ancestor.parent
        JOIN pg_attribute AS k ON k.attrelid = p.partrelid AND k.attnum = ANY (p.partattrs::int2[])
        WHERE ancestor.relid = t.oid AND k.attname = a.attname
    ),
    ARRAY(
        SELECT pn.nspname || '.' || pt.relname FROM ancestor JOIN pg_class AS pt ON pt.oid = ancestor.parent
        JOIN pg_namespace AS pn ON pn.oid = pt.relnamespace WHERE ancestor.relid = t.oid
    )::text[]
FROM pg_class AS t
JOIN pg_namespace AS n ON n.oid = t.relnamespace
JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_type AS y ON y.oid = a.atttypid
LEFT JOIN pg_type AS b ON b.oid = y.typbasetype AND y.typtype = 'd'
WHERE t.relkind IN ('r', 'p') AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
ORDER BY 3, 4, 2
