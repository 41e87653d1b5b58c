SELECT format('%s.%s', nspname, proname) FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = pronamespace
WHERE prosrc ~* '\mdblink' AND NOT EXISTS (
    SELECT FROM pg_depend WHERE classid = 'pg_proc'::regclass AND objid = p.oid AND deptype = 'e'
)
UNION SELECT format('%s.%s', schemaname, viewname) FROM pg_views WHERE definition ~* '\mdblink'
UNION SELECT format('%s.%s', schemaname, matviewname) FROM pg_matviews WHERE definition ~* '\mdblink'
ORDER BY 1
