select oid::regclass::text from pg_class where relkind in ('r', 'm', 't') and relpersistence = 'p' order by oid;
