-- The ownership marker, as text and cut: whoever may write there may have put anything in it. A second row is one too many.
SELECT left(workload::text, 100), left(scale::text, 100), left(seed::text, 100), left(format::text, 100), left(c_load::text, 100)
FROM pgdyno_dataset
LIMIT 2
