-- Roles that objects of this database name, and those whose privileges they have. Role 10 created the cluster.
WITH RECURSIVE named (oid) AS (
    SELECT refobjid FROM pg_shdepend
    WHERE refclassid = 'pg_authid'::regclass
    AND dbid IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
    AND (dbid <> 0 OR classid = 'pg_database'::regclass)
    UNION SELECT 10::oid
    UNION SELECT m.roleid FROM pg_auth_members AS m JOIN named ON m.member = named.oid
)
SELECT r.rolname, r.rolsuper, r.rolbypassrls, r.rolinherit, ARRAY(
    SELECT g.rolname::text FROM pg_auth_members AS m JOIN pg_roles AS g ON g.oid = m.roleid WHERE m.member = r.oid ORDER BY 1
) FROM pg_roles AS r JOIN named ON named.oid = r.oid
ORDER BY 1
