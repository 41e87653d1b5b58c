SELECT count(DISTINCT aid)
FROM pgbench_accounts;
