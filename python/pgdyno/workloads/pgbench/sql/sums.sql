-- Rows and balances of pgbench's tables, in one snapshot.
SELECT
    (SELECT count(*) FROM pgbench_branches) AS branches,
    (SELECT count(*) FROM pgbench_tellers) AS tellers,
    (SELECT coalesce(sum(bbalance), 0) FROM pgbench_branches) AS branch_balance,
    (SELECT coalesce(sum(tbalance), 0) FROM pgbench_tellers) AS teller_balance,
    accounts.n AS accounts,
    accounts.balance AS account_balance,
    history.n AS history,
    history.delta AS history_delta
FROM
    (SELECT count(*) AS n, coalesce(sum(abalance), 0) AS balance FROM pgbench_accounts) AS accounts,
    (SELECT count(*) AS n, coalesce(sum(delta), 0) AS delta FROM pgbench_history) AS history
