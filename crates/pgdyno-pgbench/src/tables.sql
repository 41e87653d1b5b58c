-- How the pgbench_accounts that the search path finds first is partitioned, and into how many parts.
SELECT p.partstrat, count(i.inhrelid)
FROM pg_catalog.pg_class c
LEFT JOIN pg_catalog.pg_partitioned_table p ON p.partrelid = c.oid
LEFT JOIN pg_catalog.pg_inherits i ON i.inhparent = c.oid
WHERE c.oid = pg_catalog.to_regclass('pgbench_accounts')
GROUP BY p.partstrat
