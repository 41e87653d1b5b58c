SELECT relname
FROM pg_catalog.pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname ~ '^pi[1-9][0-9]*$'
ORDER BY length(relname), relname
