-- Values of the one-second series: counters of the current database and of the server, and current states. Hidden values
-- are null, not 0.
SELECT /* pgdyno probe */
    d.xact_commit::float8 AS xact_commit,
    d.xact_rollback::float8 AS xact_rollback,
    d.blks_read::float8 AS blks_read,
    d.blks_hit::float8 AS blks_hit,
    d.temp_files::float8 AS temp_files,
    d.temp_bytes::float8 AS temp_bytes,
    d.deadlocks::float8 AS deadlocks,
    c.num_timed::float8 AS num_timed,  -- from 17
    c.num_requested::float8 AS num_requested,  -- from 17
    c.num_done::float8 AS num_done,  -- from 18
    c.buffers_written::float8 AS buffers_written,  -- from 17
    b.checkpoints_timed::float8 AS num_timed,  -- to 16
    b.checkpoints_req::float8 AS num_requested,  -- to 16
    b.buffers_checkpoint::float8 AS buffers_written,  -- to 16
    b.buffers_backend::float8 AS buffers_backend,  -- to 15
    b.buffers_clean::float8 AS buffers_clean,
    (  -- from 16
        SELECT  -- from 16
            sum((coalesce(writes, 0) + coalesce(extends, 0)) * op_bytes / current_setting('block_size')::int)::float8  -- 16 to 17
            sum((coalesce(write_bytes, 0) + coalesce(extend_bytes, 0)) / current_setting('block_size')::int)::float8  -- from 18
        FROM pg_stat_io  -- from 16
        WHERE object = 'relation' AND backend_type NOT IN ('checkpointer', 'background writer')  -- from 16
    ) AS buffers_backend,  -- from 16
    (SELECT wal_fpi FROM pg_stat_wal)::float8 AS wal_fpi,  -- from 14
    pg_wal_lsn_diff(
        CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END, '0/0'
    )::float8 AS lsn_bytes,
    a.active_backends::float8 AS active_backends,
    a.waiting_backends::float8 AS waiting_backends,
    a.autovacuum_workers::float8 AS autovacuum_workers,
    a.oldest_xmin_age::float8 AS oldest_xmin_age,
    age(f.datfrozenxid)::float8 AS frozen_xid_age
FROM pg_database AS f
JOIN pg_stat_database AS d ON d.datid = f.oid
CROSS JOIN pg_stat_bgwriter AS b
CROSS JOIN pg_stat_checkpointer AS c  -- from 17
CROSS JOIN LATERAL (
    SELECT
        CASE WHEN NOT bool_or(ours AND hidden AND usesysid IS NOT NULL)
            THEN count(*) FILTER (WHERE ours AND state = 'active') END AS active_backends,
        CASE WHEN NOT bool_or(ours AND hidden AND usesysid IS NOT NULL)
            THEN count(*) FILTER (WHERE ours AND state = 'active' AND wait_event_type = 'Lock') END AS waiting_backends,
        CASE WHEN NOT bool_or(hidden)
            THEN count(*) FILTER (WHERE backend_type = 'autovacuum worker') END AS autovacuum_workers,
        CASE WHEN NOT bool_or(hidden)
            THEN coalesce(max(age(backend_xmin)) FILTER (WHERE pid <> pg_backend_pid()), 0) END AS oldest_xmin_age
    FROM (
        SELECT
            *,
            backend_type IS NULL AS hidden,
            datid IS NOT DISTINCT FROM f.oid AND coalesce(application_name, '') <> 'pgdyno probe' AS ours
        FROM pg_stat_get_activity(NULL)
    ) AS processes
) AS a
WHERE f.datname = current_database()
