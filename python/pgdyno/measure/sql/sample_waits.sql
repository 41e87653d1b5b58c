-- Number of active client backends of the current database by wait event, without probes.
SELECT /* pgdyno probe */
    coalesce(wait_event_type || '/' || wait_event, 'running') AS wait,
    count(*)::float8 AS backends
FROM pg_stat_get_activity(NULL)
WHERE datid = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND backend_type = 'client backend'
  AND state = 'active'
  AND pid <> pg_backend_pid()
  AND application_name <> 'pgdyno probe'
GROUP BY 1
ORDER BY 1
