SELECT avg(abalance)
FROM pgbench_accounts
JOIN pgbench_branches USING (bid)
WHERE bid % 2 = 0;
