-- What can change at any moment.
SELECT title, ended_because, (SELECT count(*) FROM caveat)
FROM study
