CREATE TABLE pgbench_accounts_copy AS SELECT * FROM pgbench_accounts
