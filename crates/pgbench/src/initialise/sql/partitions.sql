-- The partitions of pgbench_accounts: name, kind, bound, whether they have a primary key. None before version 10.
SELECT class.oid::regclass,
       class.relkind,
       pg_get_expr(class.relpartbound, class.oid),
       EXISTS (SELECT FROM pg_catalog.pg_index WHERE indrelid = class.oid AND indisprimary)
  FROM pg_catalog.pg_inherits
  JOIN pg_catalog.pg_class AS class ON class.oid = inhrelid
 WHERE inhparent = to_regclass('pgbench_accounts')
 ORDER BY class.oid
