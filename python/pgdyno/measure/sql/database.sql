-- pg_stat_database of the current database, and its size: counts, bytes, times in ms.
SELECT /* pgdyno probe */
    numbackends,
    xact_commit,
    xact_rollback,
    blks_read,
    blks_hit,
    blk_read_time,
    blk_write_time,
    tup_returned,
    tup_fetched,
    tup_inserted,
    tup_updated,
    tup_deleted,
    conflicts,
    temp_files,
    temp_bytes,
    deadlocks,
    checksum_failures,  -- from 12
    session_time,  -- from 14
    active_time,  -- from 14
    idle_in_transaction_time,  -- from 14
    sessions,  -- from 14
    sessions_abandoned,  -- from 14
    sessions_fatal,  -- from 14
    sessions_killed,  -- from 14
    parallel_workers_to_launch,  -- from 18
    parallel_workers_launched,  -- from 18
    pg_database_size(datname) AS size_bytes,
    extract(epoch FROM stats_reset)::float8 AS stats_reset
FROM pg_stat_database
WHERE datname = current_database()
