SELECT value
FROM (SELECT DISTINCT {column}::text AS value FROM {table} WHERE {column} IS NOT NULL) AS known
ORDER BY md5(value || {seed})
LIMIT {limit}
