-- Intervals of a trial after a time, most of them of one second.
SELECT from_s, to_s, executed, latency_p99_ns, role = 'measure'
FROM interval
WHERE trial = ? AND from_s > ?
ORDER BY from_s
