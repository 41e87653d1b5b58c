-- pgbench's tables as the search path finds them: name, kind, columns, comment.
SELECT wanted.name,
       class.relkind,
       (SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum)
          FROM pg_catalog.pg_attribute
         WHERE attrelid = class.oid AND attnum > 0 AND NOT attisdropped),
       left(pg_catalog.obj_description(class.oid, 'pg_class'), 100)
  FROM (VALUES ('pgbench_accounts'), ('pgbench_branches'), ('pgbench_history'), ('pgbench_tellers')) AS wanted (name)
  JOIN pg_catalog.pg_class AS class ON class.oid = to_regclass(wanted.name)
 ORDER BY wanted.name
