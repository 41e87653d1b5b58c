COMMENT ON TABLE pgbench_accounts_copy IS 'made by pgdyno'
