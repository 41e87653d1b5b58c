-- Active client backends of the current database and their parallel workers by wait event, without probes. Backends that wait
-- for a process have their team: workers with the same 'leader' may be what they wait for. Up to 12, workers belong to the
-- backends with their query. Each worker has a row, with its 'pid'. 'background': up to 17 also the processes without a client
-- that write or sync WAL, and up to 15 those that read or write data files: the server adds their I/O times to those of client
-- backends. Without the privilege to see these processes it is absent, not 0. From 14 on, the rows of client backends are
-- divided by the ID of their statement.
SELECT /* pgdyno probe */
    CASE WHEN is_here AND (is_client OR is_worker) THEN coalesce(type || '/' || wait_event, 'running') END AS wait,
    CASE  -- to 17
        WHEN NOT pg_has_role('pg_read_all_stats', 'USAGE') THEN NULL  -- to 17
        WHEN NOT is_client AND type = 'IO' AND event IN ('walwrite', 'walsync') THEN 'background wal'  -- 14 to 17
        WHEN NOT is_client AND is_here AND event IN ('datafileread', 'datafilewrite') THEN 'background io'  -- to 15
    END AS background,  -- to 17
    NULL AS background,  -- from 18
    CASE WHEN is_here AND (is_worker OR is_client AND type = 'IPC') THEN leader END AS leader,
    CASE WHEN is_here AND is_worker THEN pid END::float8 AS pid,
    CASE WHEN is_here AND is_client THEN query_id END::text AS query_id,  -- from 14
    count(*)::float8 AS backends
FROM (
    SELECT
        pid,
        backend_type = 'client backend' AS is_client,
        backend_type = 'parallel worker' AS is_worker,  -- from 11
        backend_type = 'background worker' AS is_worker,  -- to 10
        coalesce(leader_pid, pid)::text AS leader,  -- from 13
        query AS leader,  -- to 12
        datid = (SELECT oid FROM pg_database WHERE datname = current_database()) AS is_here,
        wait_event_type AS type,
        wait_event,
        query_id,  -- from 14
        lower(wait_event) AS event
    FROM pg_stat_get_activity(NULL)
    WHERE (backend_type <> 'client backend' OR state = 'active')
      AND pid <> pg_backend_pid()
      AND coalesce(application_name, '') <> 'pgdyno probe'
) AS processes
WHERE is_here AND (is_client OR is_worker)
   OR type = 'IO' AND event IN ('walwrite', 'walsync')  -- 14 to 17
   OR is_here AND event IN ('datafileread', 'datafilewrite')  -- to 15
GROUP BY 1, 2, 3, 4, 5  -- from 14
GROUP BY 1, 2, 3, 4  -- to 13
UNION ALL  -- 14 to 17
SELECT NULL, 'background wal', NULL, NULL, NULL, 0 WHERE pg_has_role('pg_read_all_stats', 'USAGE')  -- 14 to 17
UNION ALL  -- to 15
SELECT NULL, 'background io', NULL, NULL, NULL, 0 WHERE pg_has_role('pg_read_all_stats', 'USAGE')  -- 14 to 15
SELECT NULL, 'background io', NULL, NULL, 0 WHERE pg_has_role('pg_read_all_stats', 'USAGE')  -- to 13
