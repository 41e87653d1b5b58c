-- Tables and views of a database whose rows can be compared with those of a copy, by kind. loose: a
-- materialized view, which can be stale, or a view that depends on one. empty: no rows are copied.
-- Views are left out if they depend on anything but rows: time, the session, catalogs, or the physical order.
-- The trees of rules and policies name functions and relations by OID. Functions of pg_catalog that are not
-- immutable depend on time or on the session, except the conversions listed here.
WITH RECURSIVE tree (relid, nodes) AS (
    SELECT ev_class, ev_action::text FROM pg_rewrite JOIN pg_class AS c ON c.oid = ev_class
    WHERE rulename = '_RETURN' AND c.relkind = 'v'
    UNION ALL
    SELECT polrelid, concat(polqual::text) FROM pg_policy
), callee (relid, oid, is_operator) AS (
    SELECT relid, (regexp_matches(nodes, ':(?:funcid|aggfnoid|winfnoid) (\d+)', 'g'))[1]::oid, false FROM tree
    UNION SELECT relid, (regexp_matches(nodes, ':opfuncid (\d+)', 'g'))[1]::oid, true FROM tree
), variable (relid) AS (
    SELECT callee.relid FROM callee JOIN pg_proc AS p ON p.oid = callee.oid
    WHERE p.provolatile = 'v' OR (
        p.provolatile = 's' AND NOT (
            p.pronamespace = 'pg_catalog'::regnamespace AND (is_operator OR p.proname ~ (
                '^(to_(char|date|timestamp|number|json|jsonb|tsvector|tsquery)|(plain|phrase|web|websearch_)to_tsquery|'
                'date_(trunc|part|bin|add|subtract)|extract|timezone|timestamp|timestamptz|date|time|timetz|interval|text|'
                'concat|concat_ws|format|quote_literal|quote_nullable|generate_series|row_to_json|array_to_(string|json)|'
                'jsonb?_(agg|object_agg|build_object|build_array|populate_record|populate_recordset|to_record|to_recordset)|'
                'string_agg|array_agg|overlaps|record_.*|array_(eq|ne|lt|le|gt|ge|cat|append|prepend))$'
            ))
        )
    )
    UNION
    SELECT relid FROM tree
    WHERE nodes ~ '\{(SQLVALUEFUNCTION|TABLESAMPLECLAUSE|NEXTVALUEEXPR)\M' OR nodes ~ ':varattno -\d'
    UNION
    SELECT c.oid FROM pg_class AS c
    WHERE c.relkind = 'v' AND (
        'security_invoker=true' = ANY (c.reloptions) OR 'security_invoker=on' = ANY (c.reloptions)
        OR pg_get_viewdef(c.oid) ~* '''(now|today|tomorrow|yesterday)'''
    )
), beneath (relid, below) AS (
    SELECT relid, (regexp_matches(nodes, ':relid (\d+)', 'g'))[1]::oid FROM tree
    UNION SELECT inhparent, inhrelid FROM pg_inherits
), relation (oid, schema, name, kind, varies, is_of_extension, is_empty) AS (
    SELECT c.oid, n.nspname, c.relname, c.relkind,
        c.oid IN (SELECT relid FROM variable) OR EXISTS (
            SELECT FROM beneath JOIN pg_class AS b ON b.oid = below JOIN pg_namespace AS bn ON bn.oid = b.relnamespace
            WHERE relid = c.oid AND (bn.nspname = 'information_schema' OR bn.nspname ~ '^pg_')
        ),
        EXISTS (
            SELECT FROM pg_depend
            WHERE classid = 'pg_class'::regclass AND objid = c.oid AND deptype = 'e'
        ),
        -- pg_dump on a standby leaves out the rows of unlogged tables.
        c.relkind = 'f' OR (c.relpersistence = 'u' AND pg_is_in_recovery())
            OR concat_ws('.', n.nspname, c.relname) = ANY (%(jobs)s)
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
), reached (relid, below) AS (
    SELECT oid, oid FROM relation
    UNION
    SELECT r.relid, b.below FROM reached AS r JOIN beneath AS b ON b.relid = r.below JOIN relation ON oid = b.below
), kinds (schema, name, kind) AS (
    SELECT r.schema, r.name, CASE
        WHEN r.is_empty THEN 'empty'
        WHEN r.is_of_extension OR r.kind = 'p' THEN NULL
        WHEN r.kind = 'r' THEN 'table'
        WHEN r.kind = 'v' AND bool_or(b.is_empty) THEN 'empty'
        WHEN bool_or(b.varies) THEN NULL
        WHEN bool_or(b.kind = 'm' OR b.is_of_extension) THEN 'loose'
        ELSE 'view'
    END
    FROM reached JOIN relation AS r ON r.oid = relid JOIN relation AS b ON b.oid = below
    GROUP BY r.oid, r.schema, r.name, r.kind, r.is_of_extension, r.is_empty
)
SELECT schema, name, kind FROM kinds WHERE kind IS NOT NULL ORDER BY schema, name
