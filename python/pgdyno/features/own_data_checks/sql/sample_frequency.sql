SELECT {column}::text AS value
FROM {table}
WHERE {column} IS NOT NULL
ORDER BY md5(tableoid::regclass::text || ctid::text || {seed})
LIMIT {limit}
