-- Parameters of the pgbench tables in this database. Indexes of constraints, and the unique one of the copy, do not count.
SELECT
    (SELECT count(*) FROM pgbench_branches)::int AS scale,
    (SELECT count(*) FROM pg_inherits WHERE inhparent = accounts.oid)::int AS partitions,
    coalesce(
        (SELECT CASE partstrat WHEN 'r' THEN 'range' WHEN 'h' THEN 'hash' ELSE 'list' END
         FROM pg_partitioned_table WHERE partrelid = accounts.oid),
        ''
    ) AS partition_method,
    coalesce(
        (SELECT split_part(option, '=', 2)::int
         FROM pg_class, unnest(reloptions) AS option
         WHERE oid = to_regclass('pgbench_branches') AND option LIKE 'fillfactor=%'),
        100
    ) AS fillfactor,
    (SELECT bool_or(relpersistence = 'u') FROM pg_class
     WHERE oid = accounts.oid
        OR oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = accounts.oid))::int AS unlogged,
    EXISTS (SELECT FROM pg_constraint WHERE conrelid = to_regclass('pgbench_history') AND contype = 'f')::int
        AS foreign_keys,
    coalesce(
        (SELECT string_agg(text, '; ' ORDER BY text COLLATE "C")
         FROM (
             SELECT t.relname || ' (' || string_agg(a.attname, ', ' ORDER BY key.place) || ')' AS text
             FROM pg_index AS i
             JOIN pg_class AS t ON t.oid = i.indrelid
             CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS key (number, place)
             JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attnum = key.number
             WHERE t.oid IN (
                       accounts.oid, to_regclass('pgbench_tellers'), to_regclass('pgbench_branches'),
                       to_regclass('pgbench_history'), to_regclass('pgbench_accounts_copy'))
               AND NOT i.indisunique
             GROUP BY i.indexrelid, t.relname
         ) AS indexes),
        ''
    ) AS indexes,
    (to_regclass('pgbench_accounts_copy') IS NOT NULL)::int AS accounts_copy
FROM (SELECT to_regclass('pgbench_accounts')::oid AS oid) AS accounts
