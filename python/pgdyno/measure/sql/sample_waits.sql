-- Number of active client backends of the current database by wait event, without probes. Up to 17 also the processes without
-- a client that write or sync WAL, and up to 15 those that read or write data files: the server adds their I/O times to those
-- of client backends.
WITH /* pgdyno probe */ processes AS (
    SELECT
        backend_type = 'client backend' AS is_client,
        datid = (SELECT oid FROM pg_database WHERE datname = current_database()) AS is_here,
        lower(wait_event) AS event,
        coalesce(wait_event_type || '/' || wait_event, 'running') AS wait
    FROM pg_stat_get_activity(NULL)
    WHERE (backend_type <> 'client backend' OR state = 'active')
      AND pid <> pg_backend_pid()
      AND coalesce(application_name, '') <> 'pgdyno probe'
)
SELECT wait, count(*)::float8 AS backends
FROM processes
WHERE is_client AND is_here
GROUP BY wait
UNION ALL  -- 14 to 17
SELECT 'background wal', count(*)::float8 FROM processes WHERE NOT is_client AND event IN ('walwrite', 'walsync')  -- 14 to 17
UNION ALL  -- to 15
SELECT 'background io', count(*)::float8 FROM processes  -- to 15
WHERE NOT is_client AND is_here AND event IN ('datafileread', 'datafilewrite')  -- to 15
ORDER BY 1
