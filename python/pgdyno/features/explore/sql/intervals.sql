-- Intervals of the driver in all trials of a case.
SELECT trial, from_s, to_s, executed, latency_p50_ns, latency_p95_ns, latency_p99_ns, latency_max_ns, role = 'measure'
FROM interval JOIN trial USING (trial)
WHERE case_id = ? AND to_s > from_s
ORDER BY trial, from_s
