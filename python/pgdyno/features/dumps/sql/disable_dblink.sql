DO $pgdyno$ DECLARE one record; BEGIN
    FOR one IN
        SELECT p.oid, p.proretset, p.prorettype FROM pg_proc AS p
        JOIN pg_depend AS d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
        JOIN pg_extension AS e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid
        JOIN pg_language AS l ON l.oid = p.prolang
        WHERE e.extname = 'dblink' AND l.lanname = 'c'
    LOOP
        EXECUTE format(
            'CREATE OR REPLACE FUNCTION %s(%s) RETURNS %s LANGUAGE plpgsql AS %L',
            (SELECT format('%I.%I', n.nspname, p.proname) FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace WHERE p.oid = one.oid),
            pg_get_function_arguments(one.oid),
            pg_get_function_result(one.oid),
            CASE WHEN one.proretset OR one.prorettype = 'void'::regtype THEN 'BEGIN RETURN; END' ELSE 'BEGIN RETURN NULL; END' END
        );
    END LOOP;
END $pgdyno$;
