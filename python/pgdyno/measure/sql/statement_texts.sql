-- Complete texts and totals of pg_stat_statements for the current database, for scripts that repeat its load: time in ms.
-- One row per statement, over all roles, by time. Without statements inside functions, whose times are part of their callers'.
-- The last rows have the sum of the statements beyond rows_max, and of those whose text is hidden: they have no queryid.
WITH /* pgdyno probe */ counted AS (
    SELECT
        queryid,
        max(query) AS query,
        sum(calls)::float8 AS calls,
        sum(rows)::float8 AS rows,
        sum(total_exec_time)::float8 AS time_ms,  -- from 13
        sum(total_time)::float8 AS time_ms,  -- to 12
        count(*) AS statements
    FROM {extension}.pg_stat_statements
    WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND coalesce(query, '') NOT LIKE '%/* pgdyno probe */%'
      AND toplevel  -- from 14
    GROUP BY queryid
), numbered AS (
    SELECT *, row_number() OVER (ORDER BY queryid IS NULL, time_ms DESC, queryid) AS place FROM counted
)
SELECT
    queryid::text AS queryid,
    query,
    calls,
    rows,
    time_ms,
    statements
FROM numbered
WHERE place <= {rows_max} AND queryid IS NOT NULL
UNION ALL
SELECT
    NULL,
    CASE WHEN queryid IS NULL THEN 'hidden' ELSE 'beyond' END,
    sum(calls),
    sum(rows),
    sum(time_ms),
    sum(statements)
FROM numbered
WHERE place > {rows_max} OR queryid IS NULL
GROUP BY 2
ORDER BY 5 DESC
