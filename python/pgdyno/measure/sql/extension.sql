-- Schema and version of an extension, and whether its library was loaded at server start (then it has settings).
SELECT /* pgdyno probe */
    e.extversion AS version,
    n.nspname AS schema,
    EXISTS (SELECT FROM pg_settings WHERE name LIKE e.extname || '.%')::int AS preloaded
FROM pg_extension AS e
JOIN pg_namespace AS n ON n.oid = e.extnamespace
WHERE e.extname = {name}
