-- Which program loaded the tables of tpcc: pgdyno leaves its marker, sysbench-tpcc numbers the tables, the key of
-- HammerDB's stock begins with the item. The second column is the number of sets of tables with a number.
SELECT CASE WHEN to_regclass('pgdyno_dataset') IS NOT NULL THEN 'pgdyno'
            WHEN to_regclass('public.warehouse1') IS NOT NULL AND to_regclass('warehouse') IS NULL THEN 'sysbench'
            WHEN to_regclass('warehouse') IS NULL THEN 'none'
            WHEN EXISTS (SELECT FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
                          WHERE indrelid = to_regclass('stock') AND indisunique AND attname = 's_i_id') THEN 'hammerdb'
            ELSE 'other'
       END,
       (SELECT count(*)::integer FROM pg_class
         WHERE relnamespace = to_regnamespace('public') AND relkind = 'r' AND relname ~ '^warehouse[1-9][0-9]*$')
