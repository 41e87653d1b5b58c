-- What can change at any moment.
SELECT title, ended_because, (SELECT count(*) FROM caveat),
       (SELECT max(json_extract(plan, '$.resumed_for_more')) FROM study_case)
FROM study
