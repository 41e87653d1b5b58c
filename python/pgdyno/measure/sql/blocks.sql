-- Blocks found in shared_buffers (hit) and requested from the kernel (read), by kind of relation, summed over the tables of
-- the current database: user tables, and system catalogs.
SELECT /* pgdyno probe */
    CASE WHEN schemaname IN ('pg_catalog', 'information_schema', 'pg_toast') THEN 'system' ELSE 'user' END AS kind,
    count(*) AS tables,
    sum(heap_blks_read)::bigint AS heap_blks_read,
    sum(heap_blks_hit)::bigint AS heap_blks_hit,
    sum(idx_blks_read)::bigint AS idx_blks_read,
    sum(idx_blks_hit)::bigint AS idx_blks_hit,
    sum(toast_blks_read)::bigint AS toast_blks_read,
    sum(toast_blks_hit)::bigint AS toast_blks_hit,
    sum(tidx_blks_read)::bigint AS tidx_blks_read,
    sum(tidx_blks_hit)::bigint AS tidx_blks_hit
FROM pg_statio_all_tables
GROUP BY 1
ORDER BY 1
