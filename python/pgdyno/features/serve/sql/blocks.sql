-- Ended blocks of each case with their total time; hidden A/A blocks, too.
SELECT case_id, aa_of IS NULL, sum(status = 'done'), sum(ended_unix_s - started_unix_s), max(ended_unix_s),
       max(CASE WHEN status = 'running' THEN started_unix_s END)
FROM block JOIN study_case USING (case_id)
GROUP BY case_id
ORDER BY case_id
