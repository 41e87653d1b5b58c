-- Objects that tables and views need: types, functions, schemas, extensions and other relations. Foreign keys
-- do not count. The last column is the kind of a relation that is not selected itself.
WITH RECURSIVE chosen AS (
    SELECT c.oid FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    JOIN unnest(%(schemas)s::text[], %(names)s::text[]) AS s (schema, name)
    ON s.schema = n.nspname AND s.name = c.relname
), part (classid, objid) AS (
    SELECT 'pg_class'::regclass::oid, oid FROM chosen
    UNION
    SELECT d.classid, d.objid FROM part JOIN pg_depend AS d ON d.refclassid = part.classid AND d.refobjid = part.objid
    WHERE d.deptype IN ('a', 'i') AND NOT EXISTS (
        SELECT FROM pg_class AS c
        WHERE d.classid = 'pg_class'::regclass AND c.oid = d.objid AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
    ) AND NOT EXISTS (
        SELECT FROM pg_constraint AS k
        WHERE d.classid = 'pg_constraint'::regclass AND k.oid = d.objid AND k.contype = 'f'
    ) AND d.classid <> 'pg_proc'::regclass
), needed (classid, objid) AS (
    SELECT classid, objid FROM part
    UNION
    SELECT d.refclassid, d.refobjid FROM needed JOIN pg_depend AS d ON d.classid = needed.classid AND d.objid = needed.objid
    WHERE NOT (
        needed.classid = 'pg_class'::regclass AND needed.objid NOT IN (SELECT objid FROM part WHERE classid = 'pg_class'::regclass)
    )
)
SELECT needed.classid::bigint, needed.objid::bigint, i.type, i.identity,
    needed.classid = 'pg_class'::regclass AND NOT EXISTS (
        SELECT FROM pg_depend AS e
        WHERE e.classid = needed.classid AND e.objid = needed.objid AND e.deptype = 'e'
    ) AND EXISTS (SELECT FROM pg_class AS c WHERE c.oid = needed.objid AND c.relkind <> 'c')
FROM needed, pg_identify_object(needed.classid, needed.objid, 0) AS i
WHERE (needed.classid, needed.objid) NOT IN (SELECT classid, objid FROM part)
ORDER BY 3, 4
