-- Trials from one on, without those of hidden A/A blocks.
SELECT trial, status, case_id, block, arm.name, epoch_unix_s
FROM trial JOIN arm USING (case_id, arm) JOIN study_case USING (case_id)
WHERE trial >= ? AND aa_of IS NULL
ORDER BY trial
