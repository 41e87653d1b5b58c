-- Where an extension lies, its version, and whether its library was loaded at the server's start (it has settings then).
SELECT /* pgdyno probe */
    e.extversion AS version,
    n.nspname AS schema,
    EXISTS (SELECT FROM pg_settings WHERE name LIKE e.extname || '.%')::int AS preloaded
FROM pg_extension AS e
JOIN pg_namespace AS n ON n.oid = e.extnamespace
WHERE e.extname = {name}
