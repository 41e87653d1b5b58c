-- The scale of the tables, as pgbench finds it out.
SELECT count(*) FROM pgbench_branches
