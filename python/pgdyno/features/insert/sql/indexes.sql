SELECT i.relname::text, x.indisvalid, x.indisprimary, pg_catalog.array_to_string(array(
    SELECT a.attname::text
    FROM unnest(x.indkey::smallint[]) WITH ORDINALITY AS k (attnum, place)
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = x.indrelid AND a.attnum = k.attnum
    ORDER BY k.place
), ', ')
FROM pg_catalog.pg_index AS x
JOIN pg_catalog.pg_class AS i ON i.oid = x.indexrelid
WHERE x.indrelid = %s::regclass
ORDER BY 1
