SELECT relname, pg_catalog.obj_description(oid, 'pg_class')
FROM pg_catalog.pg_class
WHERE relnamespace = 'public'::regnamespace AND relname IN ('linktable', 'counttable', 'nodetable')
ORDER BY relname
