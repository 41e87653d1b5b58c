-- User tables and indexes of the current database: sizes in bytes, rows, scans, vacuums. One row per relation (the
-- {rows_max} largest), and one of kind 'others' with the sums of the remaining ones. Bytes of a table are those of its heap.
WITH /* pgdyno probe */ relations AS (
    SELECT
        c.oid,
        CASE c.relkind WHEN 'i' THEN 'index' WHEN 'm' THEN 'materialized view' ELSE 'table' END AS kind,
        n.nspname::text AS schema,
        c.relname::text AS name,
        i.indrelid,
        c.reltoastrelid,
        c.reltuples::float8 AS reltuples,
        CASE WHEN c.relfrozenxid <> '0'::xid THEN age(c.relfrozenxid) END AS frozen_xid_age,
        pg_relation_size(c.oid) AS bytes
    FROM pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    LEFT JOIN pg_index AS i ON i.indexrelid = c.oid
    WHERE c.relkind IN ('r', 'm', 'i')
      AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\_toast%'
      AND n.nspname NOT LIKE 'pg\_temp\_%'
), numbered AS (
    SELECT *, row_number() OVER (ORDER BY bytes DESC NULLS LAST, oid) AS place
    FROM relations
), listed AS (
    SELECT *, CASE WHEN place <= {rows_max} THEN place END AS row_number
    FROM numbered
)
SELECT
    CASE WHEN row_number IS NULL THEN 'others' ELSE max(kind) END AS kind,
    count(*) AS relations,
    CASE WHEN row_number IS NOT NULL THEN max(r.schema) END AS schema,
    CASE WHEN row_number IS NOT NULL THEN max(r.name) END AS name,
    CASE WHEN row_number IS NOT NULL THEN max(parent.relname::text) END AS table_name,
    sum(bytes)::bigint AS bytes,
    sum(CASE WHEN r.reltoastrelid <> 0 THEN pg_total_relation_size(r.reltoastrelid) END)::bigint AS toast_bytes,
    sum(CASE WHEN r.kind <> 'index' THEN pg_indexes_size(r.oid) END)::bigint AS indexes_bytes,
    sum(CASE WHEN r.kind <> 'index' THEN pg_total_relation_size(r.oid) END)::bigint AS total_bytes,
    sum(nullif(r.reltuples, -1)) AS reltuples,
    max(r.frozen_xid_age) AS frozen_xid_age,
    sum(t.seq_scan)::bigint AS seq_scan,
    sum(t.seq_tup_read)::bigint AS seq_tup_read,
    sum(coalesce(x.idx_scan, t.idx_scan))::bigint AS idx_scan,
    sum(x.idx_tup_read)::bigint AS idx_tup_read,
    sum(coalesce(x.idx_tup_fetch, t.idx_tup_fetch))::bigint AS idx_tup_fetch,
    sum(t.n_tup_ins)::bigint AS n_tup_ins,
    sum(t.n_tup_upd)::bigint AS n_tup_upd,
    sum(t.n_tup_del)::bigint AS n_tup_del,
    sum(t.n_tup_hot_upd)::bigint AS n_tup_hot_upd,
    sum(t.n_tup_newpage_upd)::bigint AS n_tup_newpage_upd,  -- from 16
    sum(t.n_live_tup)::bigint AS n_live_tup,
    sum(t.n_dead_tup)::bigint AS n_dead_tup,
    sum(t.n_mod_since_analyze)::bigint AS n_mod_since_analyze,
    sum(t.n_ins_since_vacuum)::bigint AS n_ins_since_vacuum,  -- from 13
    sum(t.vacuum_count)::bigint AS vacuum_count,
    sum(t.autovacuum_count)::bigint AS autovacuum_count,
    sum(t.analyze_count)::bigint AS analyze_count,
    sum(t.autoanalyze_count)::bigint AS autoanalyze_count,
    sum(t.total_vacuum_time) AS total_vacuum_time,  -- from 18: ms
    sum(t.total_autovacuum_time) AS total_autovacuum_time,  -- from 18: ms
    sum(t.total_analyze_time) AS total_analyze_time,  -- from 18: ms
    sum(t.total_autoanalyze_time) AS total_autoanalyze_time,  -- from 18: ms
    sum(tio.heap_blks_read)::bigint AS heap_blks_read,
    sum(tio.heap_blks_hit)::bigint AS heap_blks_hit,
    sum(xio.idx_blks_read)::bigint AS idx_blks_read,
    sum(xio.idx_blks_hit)::bigint AS idx_blks_hit
FROM listed AS r
LEFT JOIN pg_class AS parent ON parent.oid = r.indrelid
LEFT JOIN pg_stat_all_tables AS t ON t.relid = r.oid
LEFT JOIN pg_statio_all_tables AS tio ON tio.relid = r.oid
LEFT JOIN pg_stat_all_indexes AS x ON x.indexrelid = r.oid
LEFT JOIN pg_statio_all_indexes AS xio ON xio.indexrelid = r.oid
GROUP BY row_number
ORDER BY row_number
