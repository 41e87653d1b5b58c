-- Standbys and replication slots: lag, and WAL retained for them, in bytes.
WITH /* pgdyno probe */ here AS (
    SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END AS lsn
)
SELECT
    'standby' AS kind,
    application_name AS name,
    state,
    sync_state AS type,
    1 AS active,
    (state IS NULL)::int AS hidden,
    pg_wal_lsn_diff(lsn, sent_lsn)::bigint AS sent_lag_bytes,
    pg_wal_lsn_diff(lsn, write_lsn)::bigint AS write_lag_bytes,
    pg_wal_lsn_diff(lsn, flush_lsn)::bigint AS flush_lag_bytes,
    pg_wal_lsn_diff(lsn, replay_lsn)::bigint AS replay_lag_bytes,
    extract(epoch FROM replay_lag)::float8 AS replay_lag_s,
    NULL::bigint AS retained_bytes
FROM pg_stat_replication CROSS JOIN here
UNION ALL
SELECT
    'slot',
    slot_name::text,
    wal_status,  -- from 13
    NULL,  -- to 12
    slot_type,
    active::int,
    0,
    NULL,
    NULL,
    pg_wal_lsn_diff(lsn, confirmed_flush_lsn)::bigint,
    NULL,
    NULL,
    pg_wal_lsn_diff(lsn, restart_lsn)::bigint
FROM pg_replication_slots CROSS JOIN here
ORDER BY 1, 2
