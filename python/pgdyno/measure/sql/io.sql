-- pg_stat_io, rows with nonzero counts: operations, bytes, times in ms (with track_io_timing). Up to 17 an operation is a
-- block, from 18 on a system call for one or several blocks: bytes are comparable between versions, operations are not.
SELECT /* pgdyno probe */
    backend_type,
    object,
    context,
    reads,
    read_bytes::bigint AS read_bytes,  -- from 18
    reads * op_bytes AS read_bytes,  -- to 17
    read_time,
    writes,
    write_bytes::bigint AS write_bytes,  -- from 18
    writes * op_bytes AS write_bytes,  -- to 17
    write_time,
    writebacks,
    writeback_time,
    extends,
    extend_bytes::bigint AS extend_bytes,  -- from 18
    extends * op_bytes AS extend_bytes,  -- to 17
    extend_time,
    hits,
    evictions,
    reuses,
    fsyncs,
    fsync_time,
    extract(epoch FROM stats_reset)::float8 AS stats_reset
FROM pg_stat_io
WHERE coalesce(reads, 0) + coalesce(writes, 0) + coalesce(writebacks, 0) + coalesce(extends, 0)
    + coalesce(hits, 0) + coalesce(evictions, 0) + coalesce(reuses, 0) + coalesce(fsyncs, 0) > 0
ORDER BY backend_type, object, context
