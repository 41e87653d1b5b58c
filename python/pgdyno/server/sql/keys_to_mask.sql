-- Foreign keys, and unique or exclusion indexes, with the numbers of their columns. 0: an expression.
SELECT conrelid::bigint, conkey::int[], confrelid::bigint, confkey::int[], conname::text
FROM pg_constraint WHERE contype = 'f'
UNION ALL
SELECT indrelid::bigint, string_to_array(indkey::text, ' ')::int[], 0, '{}', indexrelid::regclass::text
FROM pg_index WHERE indisunique OR indisexclusion
