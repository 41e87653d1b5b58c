SELECT least(
         current_setting('max_connections')::int
         - CASE WHEN rolsuper THEN 0
                ELSE current_setting('superuser_reserved_connections')::int
                     -- from PostgreSQL 16 on; members of the role can use them
                     + CASE WHEN EXISTS (SELECT FROM pg_roles AS reserving
                                         WHERE reserving.rolname = 'pg_use_reserved_connections'
                                           AND pg_has_role(current_user, reserving.oid, 'usage'))
                            THEN 0
                            ELSE coalesce(current_setting('reserved_connections', true)::int, 0)
                       END
           END,
         CASE WHEN rolsuper OR rolconnlimit < 0 THEN NULL ELSE rolconnlimit END)
FROM pg_roles
WHERE rolname = current_user
