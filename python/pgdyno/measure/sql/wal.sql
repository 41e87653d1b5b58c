-- WAL insert position in bytes since its beginning, and WAL activity: counts, bytes, times in ms (with
-- track_wal_io_timing).
SELECT /* pgdyno probe */
    w.wal_records,  -- from 14
    w.wal_fpi,  -- from 14
    w.wal_bytes::bigint AS wal_bytes,  -- from 14
    w.wal_buffers_full,  -- from 14
    w.wal_fpi_bytes::bigint AS wal_fpi_bytes,  -- from 19
    w.wal_write,  -- 14 to 17
    w.wal_sync,  -- 14 to 17
    w.wal_write_time,  -- 14 to 17
    w.wal_sync_time,  -- 14 to 17
    io.writes AS wal_write,  -- from 18
    io.fsyncs AS wal_sync,  -- from 18
    io.write_time AS wal_write_time,  -- from 18
    io.fsync_time AS wal_sync_time,  -- from 18
    extract(epoch FROM w.stats_reset)::float8 AS stats_reset,  -- from 14
    pg_wal_lsn_diff(
        CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END, '0/0'
    )::bigint AS lsn_bytes
FROM (VALUES (1)) AS one (row)
CROSS JOIN pg_stat_wal AS w  -- from 14
CROSS JOIN (  -- from 18
    SELECT  -- from 18
        sum(writes)::bigint AS writes,  -- from 18
        sum(fsyncs)::bigint AS fsyncs,  -- from 18
        sum(write_time) AS write_time,  -- from 18
        sum(fsync_time) AS fsync_time  -- from 18
    FROM pg_stat_io  -- from 18
    WHERE object = 'wal' AND context = 'normal' AND backend_type <> 'walreceiver'  -- from 18
) AS io  -- from 18
