-- Frozen, as the accounts themselves are.
VACUUM (FREEZE, ANALYZE) pgbench_accounts_copy
