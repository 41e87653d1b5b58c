SELECT sum(account.abalance)
FROM pgbench_accounts AS account
JOIN pgbench_accounts_copy USING (aid)
WHERE account.bid % 10 = 0;
