SELECT count(*)
FROM pgbench_accounts
JOIN pgbench_accounts_copy USING (aid)
WHERE aid % 2 = 0;
