-- Locks held (granted 1) and waited for (0), by type of object and mode, without those of probes.
SELECT /* pgdyno probe */
    locktype,
    mode,
    granted::int AS granted,
    count(*) AS locks,
    extract(epoch FROM max(clock_timestamp() - waitstart))::float8 AS longest_wait_s,  -- from 14
    count(DISTINCT pid) AS processes
FROM pg_locks
WHERE pid IS DISTINCT FROM pg_backend_pid()
GROUP BY locktype, mode, granted
ORDER BY locktype, mode, granted
