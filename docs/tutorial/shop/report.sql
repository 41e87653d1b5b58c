\set order random(1, 500000)
SELECT ordered_at AS since, ordered_at + interval '1 day' AS until FROM orders WHERE id = :order \gset
SELECT status, count(*) FROM orders WHERE ordered_at >= ':since' AND ordered_at < ':until' GROUP BY status;
