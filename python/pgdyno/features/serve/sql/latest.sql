-- The last interval of each arm in the case of the last trial, without those of hidden A/A blocks.
WITH own AS (
    SELECT max(trial) AS trial FROM trial JOIN study_case USING (case_id)
    WHERE aa_of IS NULL AND trial IN (SELECT trial FROM interval)
    GROUP BY case_id, arm
    HAVING case_id = (SELECT case_id FROM trial JOIN study_case USING (case_id) WHERE aa_of IS NULL ORDER BY trial DESC LIMIT 1)
)
SELECT arm.name, executed / (to_s - from_s), latency_p50_ns, latency_p95_ns, latency_p99_ns, max(from_s)
FROM own JOIN trial USING (trial) JOIN arm USING (case_id, arm) JOIN interval USING (trial)
WHERE to_s > from_s
GROUP BY trial
ORDER BY arm
