-- pg_stat_statements of the current database, without probes: times in ms, blocks of the server's block_size, WAL in bytes.
-- One row per statement (the first {rows_max} by time), and one of kind 'others' with the sums of the remaining ones and of
-- those with a hidden text (from 14 on a second one for statements inside functions).
-- Versions are server versions with the same columns as the extension. The text of a statement with a password is omitted.
WITH /* pgdyno probe */ numbered AS (
    SELECT
        *,
        CASE
            WHEN queryid IS NULL THEN NULL
            ELSE row_number() OVER (
                ORDER BY
                    queryid IS NULL,
                    total_exec_time DESC,  -- from 13
                    total_time DESC,  -- to 12
                    queryid, userid)
        END AS place
    FROM {extension}.pg_stat_statements
    WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND coalesce(query, '') NOT LIKE '%/* pgdyno probe */%'
), listed AS (
    SELECT *, CASE WHEN place <= {rows_max} THEN place END AS row_number
    FROM numbered
)
SELECT
    CASE WHEN row_number IS NULL THEN 'others' ELSE 'statement' END AS kind,
    count(*) AS statements,
    count(*) FILTER (WHERE queryid IS NULL) AS hidden,
    CASE WHEN row_number IS NOT NULL THEN max(queryid)::text END AS queryid,
    CASE WHEN row_number IS NOT NULL THEN pg_get_userbyid(max(userid::bigint)::oid)::text END AS username,
    bool_and(toplevel)::int AS toplevel,  -- from 14: 0 for statements inside functions, whose times are included in those of their callers
    CASE
        WHEN row_number IS NULL THEN NULL
        WHEN max(query) ~* 'passw' AND max(query) !~* '^\s*(select|insert|update|delete|merge|with)\M'
            THEN '<a statement that names a password>'
        ELSE left(btrim(regexp_replace(left(max(query), 4000), '\s+', ' ', 'g')), 1000)
    END AS query,
    sum(calls)::bigint AS calls,
    sum(rows)::bigint AS rows,
    sum(total_exec_time) AS total_exec_time,  -- from 13
    min(min_exec_time) AS min_exec_time,  -- from 13
    max(max_exec_time) AS max_exec_time,  -- from 13
    CASE WHEN row_number IS NOT NULL THEN max(mean_exec_time) END AS mean_exec_time,  -- from 13
    CASE WHEN row_number IS NOT NULL THEN max(stddev_exec_time) END AS stddev_exec_time,  -- from 13
    sum(plans)::bigint AS plans,  -- from 13
    sum(total_plan_time) AS total_plan_time,  -- from 13
    sum(wal_records)::bigint AS wal_records,  -- from 13
    sum(wal_fpi)::bigint AS wal_fpi,  -- from 13
    sum(wal_bytes)::bigint AS wal_bytes,  -- from 13
    sum(wal_buffers_full)::bigint AS wal_buffers_full,  -- from 18
    sum(total_time) AS total_exec_time,  -- to 12
    min(min_time) AS min_exec_time,  -- to 12
    max(max_time) AS max_exec_time,  -- to 12
    CASE WHEN row_number IS NOT NULL THEN max(mean_time) END AS mean_exec_time,  -- to 12
    CASE WHEN row_number IS NOT NULL THEN max(stddev_time) END AS stddev_exec_time,  -- to 12
    sum(shared_blks_hit)::bigint AS shared_blks_hit,
    sum(shared_blks_read)::bigint AS shared_blks_read,
    sum(shared_blks_dirtied)::bigint AS shared_blks_dirtied,
    sum(shared_blks_written)::bigint AS shared_blks_written,
    sum(local_blks_hit)::bigint AS local_blks_hit,
    sum(local_blks_read)::bigint AS local_blks_read,
    sum(local_blks_dirtied)::bigint AS local_blks_dirtied,
    sum(local_blks_written)::bigint AS local_blks_written,
    sum(shared_blk_read_time) AS shared_blk_read_time,  -- from 17
    sum(shared_blk_write_time) AS shared_blk_write_time,  -- from 17
    sum(local_blk_read_time) AS local_blk_read_time,  -- from 17
    sum(local_blk_write_time) AS local_blk_write_time,  -- from 17
    sum(blk_read_time) AS shared_blk_read_time,  -- to 16: with that of local blocks
    sum(blk_write_time) AS shared_blk_write_time,  -- to 16: with that of local blocks
    sum(temp_blk_read_time) AS temp_blk_read_time,  -- from 15
    sum(temp_blk_write_time) AS temp_blk_write_time,  -- from 15
    sum(jit_generation_time + jit_inlining_time + jit_optimization_time + jit_emission_time) AS jit_time,  -- from 15
    sum(parallel_workers_to_launch)::bigint AS parallel_workers_to_launch,  -- from 18
    sum(parallel_workers_launched)::bigint AS parallel_workers_launched,  -- from 18
    sum(generic_plan_calls)::bigint AS generic_plan_calls,  -- from 19
    sum(custom_plan_calls)::bigint AS custom_plan_calls,  -- from 19
    extract(epoch FROM max(stats_since))::float8 AS stats_since,  -- from 17: of this statement
    (SELECT dealloc FROM {extension}.pg_stat_statements_info) AS dealloc,  -- from 14: number of evictions, for all databases
    (SELECT extract(epoch FROM stats_reset)::float8 FROM {extension}.pg_stat_statements_info) AS stats_reset,  -- from 14
    sum(temp_blks_read)::bigint AS temp_blks_read,
    sum(temp_blks_written)::bigint AS temp_blks_written
FROM listed
GROUP BY
    CASE WHEN row_number IS NULL THEN toplevel END,  -- from 14
    row_number
ORDER BY
    row_number
