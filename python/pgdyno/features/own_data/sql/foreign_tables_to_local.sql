-- Makes local tables of all foreign tables of a database, without rows, and drops all foreign servers.
-- No ALTER TABLE does that, and a new table would lose its views and partitions. Rules read the kind of a
-- relation again at each use. TRUNCATE creates the file of the table, and ALTER TABLE its TOAST table.
-- Event triggers do not fire for a replica.
DO $pgdyno$ DECLARE one record; access_method text := ''; BEGIN
    SET LOCAL session_replication_role = replica;
    IF current_setting('server_version_num')::int >= 120000 THEN
        access_method := ', relam = (SELECT oid FROM pg_am WHERE amname = ''heap'')';
    END IF;
    FOR one IN SELECT ftrelid AS oid, format('%I.%I', nspname, relname) AS name FROM pg_foreign_table
        JOIN pg_class AS c ON c.oid = ftrelid JOIN pg_namespace AS n ON n.oid = relnamespace
    LOOP
        DELETE FROM pg_foreign_table WHERE ftrelid = one.oid;
        DELETE FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = one.oid
            AND refclassid = 'pg_foreign_server'::regclass;
        UPDATE pg_attribute SET attfdwoptions = NULL WHERE attrelid = one.oid AND attfdwoptions IS NOT NULL;
        EXECUTE format(
            'UPDATE pg_class AS c SET relkind = ''r'', relfilenode = c.oid, relfrozenxid = s.relfrozenxid,
                relminmxid = s.relminmxid %s FROM pg_class AS s WHERE s.oid = ''pg_class''::regclass AND c.oid = %s',
            access_method, one.oid
        );
        EXECUTE format('TRUNCATE ONLY %s', one.name);
        EXECUTE format('ALTER TABLE ONLY %s REPLICA IDENTITY DEFAULT', one.name);
    END LOOP;
    FOR one IN SELECT srvname FROM pg_foreign_server LOOP
        EXECUTE format('DROP SERVER %I CASCADE', one.srvname);
    END LOOP;
    IF to_regclass('cron.job') IS NOT NULL THEN
        TRUNCATE cron.job;
    END IF;
    IF to_regclass('cron.job_run_details') IS NOT NULL THEN
        TRUNCATE cron.job_run_details;
    END IF;
END $pgdyno$;
