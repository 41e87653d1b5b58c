-- Number of server processes by type, state and wait event, without probes. Those of other users are hidden without
-- permission. Running vacuums are counted by phase.
SELECT /* pgdyno probe */
    'processes' AS kind,
    backend_type,
    state,
    wait_event_type,
    wait_event,
    CASE WHEN backend_type IS NULL THEN count(*) ELSE 0 END AS hidden,
    count(*) AS processes
FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND application_name <> 'pgdyno probe'
GROUP BY backend_type, state, wait_event_type, wait_event
UNION ALL
SELECT 'vacuums', NULL, coalesce(phase, '<insufficient privilege>'), NULL, NULL, 0, count(*)
FROM pg_stat_progress_vacuum
GROUP BY phase
ORDER BY 1, 2, 3, 4, 5
