-- Checkpoints and the background writer: counts, times in ms, buffers of the server's block_size.
SELECT /* pgdyno probe */
    c.num_timed,  -- from 17
    c.num_requested,  -- from 17
    c.num_done,  -- from 18
    c.restartpoints_timed,  -- from 17
    c.restartpoints_req,  -- from 17
    c.restartpoints_done,  -- from 17
    c.write_time,  -- from 17
    c.sync_time,  -- from 17
    c.buffers_written,  -- from 17
    c.slru_written,  -- from 18
    extract(epoch FROM c.stats_reset)::float8 AS stats_reset,  -- from 17
    extract(epoch FROM b.stats_reset)::float8 AS bgwriter_stats_reset,  -- from 17
    b.checkpoints_timed AS num_timed,  -- to 16: with restartpoints
    b.checkpoints_req AS num_requested,  -- to 16: with restartpoints
    b.checkpoint_write_time AS write_time,  -- to 16
    b.checkpoint_sync_time AS sync_time,  -- to 16
    b.buffers_checkpoint AS buffers_written,  -- to 16
    b.buffers_backend,  -- to 15
    b.buffers_backend_fsync,  -- to 15
    extract(epoch FROM b.stats_reset)::float8 AS stats_reset,  -- to 16
    extract(epoch FROM b.stats_reset)::float8 AS bgwriter_stats_reset,  -- to 16
    io.buffers_backend,  -- from 16: pg_stat_bgwriter of 16 counts an extension by several blocks as one
    io.buffers_backend_fsync,  -- from 16
    b.buffers_clean,
    b.maxwritten_clean,
    b.buffers_alloc
FROM pg_stat_bgwriter AS b
CROSS JOIN pg_stat_checkpointer AS c  -- from 17
CROSS JOIN (  -- from 16
    SELECT  -- from 16
        sum((coalesce(writes, 0) + coalesce(extends, 0)) * op_bytes / current_setting('block_size')::int)::bigint AS buffers_backend,  -- 16 to 17
        sum((coalesce(write_bytes, 0) + coalesce(extend_bytes, 0)) / current_setting('block_size')::int)::bigint AS buffers_backend,  -- from 18
        sum(fsyncs)::bigint AS buffers_backend_fsync  -- from 16
    FROM pg_stat_io  -- from 16
    WHERE object = 'relation' AND backend_type NOT IN ('checkpointer', 'background writer')  -- from 16
) AS io  -- from 16
