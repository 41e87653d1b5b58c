-- The ownership marker, as text and truncated, because any user with write access can change it. A second row is an error.
SELECT left(workload::text, 100), left(scale::text, 100), left(seed::text, 100), left(format::text, 100), left(c_load::text, 100)
FROM pgdyno_dataset
LIMIT 2
