SELECT relname, pg_catalog.obj_description(oid, 'pg_class')
FROM pg_catalog.pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname ~ '^pi[1-9][0-9]*$'
ORDER BY relname
