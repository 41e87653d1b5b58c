SELECT pgdyno_version, engine, command, host, file
FROM (
    SELECT pgdyno_version, engine, command, host, file FROM study
    UNION ALL
    SELECT pgdyno_version, engine, command, host, '' FROM crash_test
)
LIMIT 1
