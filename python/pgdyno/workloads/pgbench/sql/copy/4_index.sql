CREATE UNIQUE INDEX ON pgbench_accounts_copy (aid)
