\set day random(0, 600)
SELECT status, count(*) FROM orders
WHERE ordered_at >= timestamp '2024-01-01' + :day * interval '1 day'
  AND ordered_at < timestamp '2024-01-02' + :day * interval '1 day'
GROUP BY status;
