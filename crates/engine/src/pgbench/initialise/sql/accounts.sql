-- pgbench_accounts: whether its keys are of type bigint, by what it is divided if at all, and whether foreign keys
-- refer to any of the tables.
SELECT atttypid = 'bigint'::regtype,
       pg_get_partkeydef(attrelid),
       EXISTS (SELECT
                 FROM pg_catalog.pg_constraint
                WHERE contype = 'f'
                  AND confrelid IN (to_regclass('pgbench_accounts'), to_regclass('pgbench_branches'),
                                    to_regclass('pgbench_history'), to_regclass('pgbench_tellers')))
  FROM pg_catalog.pg_attribute
 WHERE attrelid = to_regclass('pgbench_accounts') AND attname = 'aid'
