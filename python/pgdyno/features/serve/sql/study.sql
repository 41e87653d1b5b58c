-- What can change at any moment.
SELECT title, ended_because, (SELECT count(*) FROM caveat),
       (SELECT total(json_extract(plan, '$.budget_s')) FROM study_case WHERE aa_of IS NULL)
FROM study
