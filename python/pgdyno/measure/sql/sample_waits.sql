-- Number of active client backends of the current database by wait event, without probes. A backend that waits for its
-- parallel workers is counted in their states ('worker …'), in equal parts. Up to 12, workers belong to the backends with their
-- query. 'worker pid' has process IDs instead of a number. Up to 17 also the processes without a client that write or sync WAL,
-- and up to 15 those that read or write data files: the server adds their I/O times to those of client backends.
WITH /* pgdyno probe */ processes AS (
    SELECT
        pid,
        backend_type = 'client backend' AS is_client,
        backend_type = 'parallel worker' AS is_worker,  -- from 11
        backend_type = 'background worker' AS is_worker,  -- to 10
        coalesce(leader_pid, pid) AS leader,  -- from 13
        query AS leader,  -- to 12
        datid = (SELECT oid FROM pg_database WHERE datname = current_database()) AS is_here,
        lower(wait_event) AS event,
        coalesce(wait_event_type, '') = 'IPC' AS waits_for_process,
        coalesce(wait_event_type || '/' || wait_event, 'running') AS wait
    FROM pg_stat_get_activity(NULL)
    WHERE (backend_type <> 'client backend' OR state = 'active')
      AND pid <> pg_backend_pid()
      AND coalesce(application_name, '') <> 'pgdyno probe'
), counted AS (
    SELECT
        CASE WHEN is_worker THEN 'worker ' ELSE '' END || wait AS wait,
        is_client,
        waits_for_process,
        count(*) FILTER (WHERE is_worker) OVER team AS workers,
        count(*) FILTER (WHERE is_client AND waits_for_process) OVER team AS waiting
    FROM processes
    WHERE is_here AND (is_client OR is_worker)
    WINDOW team AS (PARTITION BY leader)
)
SELECT wait, sum(CASE WHEN is_client THEN 1 ELSE waiting::float8 / workers END)::float8 AS backends
FROM counted
WHERE CASE WHEN is_client THEN NOT (waits_for_process AND workers > 0) ELSE waiting > 0 END
GROUP BY wait
UNION ALL
SELECT 'worker pid', pid::float8 FROM processes WHERE is_here AND is_worker
UNION ALL  -- 14 to 17
SELECT 'background wal', count(*)::float8 FROM processes WHERE NOT is_client AND event IN ('walwrite', 'walsync')  -- 14 to 17
UNION ALL  -- to 15
SELECT 'background io', count(*)::float8 FROM processes  -- to 15
WHERE NOT is_client AND is_here AND event IN ('datafileread', 'datafilewrite')  -- to 15
ORDER BY 1
