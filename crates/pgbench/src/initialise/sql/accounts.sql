-- pgbench_accounts: whether its keys are of type bigint, by what it is divided if at all, whether foreign keys refer to
-- any of the tables, and whether it and its partitions are ours to alter and have no defaults.
WITH stored AS (
    SELECT to_regclass('pgbench_accounts')::oid AS id
     UNION ALL
    SELECT inhrelid FROM pg_catalog.pg_inherits WHERE inhparent = to_regclass('pgbench_accounts')
)
SELECT atttypid = 'bigint'::regtype,
       pg_get_partkeydef(attrelid),
       EXISTS (SELECT
                 FROM pg_catalog.pg_constraint
                WHERE contype = 'f'
                  AND confrelid IN (to_regclass('pgbench_accounts'), to_regclass('pgbench_branches'),
                                    to_regclass('pgbench_history'), to_regclass('pgbench_tellers'))),
       NOT EXISTS (SELECT FROM pg_catalog.pg_attrdef WHERE adrelid IN (SELECT id FROM stored))
       AND (SELECT bool_and(pg_has_role(relowner, 'USAGE'))
              FROM pg_catalog.pg_class
             WHERE oid IN (SELECT id FROM stored))
  FROM pg_catalog.pg_attribute
 WHERE attrelid = to_regclass('pgbench_accounts') AND attname = 'aid'
