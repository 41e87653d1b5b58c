-- Client backends of the current database, without probes.
SELECT /* pgdyno probe */ pid
FROM pg_stat_activity
WHERE datname = current_database()
  AND backend_type = 'client backend'
  AND pid <> pg_backend_pid()
  AND application_name <> 'pgdyno probe'
ORDER BY pid
