-- The earliest of the last trials: a page that is opened late begins with it.
SELECT coalesce(min(trial), 0) FROM (SELECT trial FROM trial ORDER BY trial DESC LIMIT ?)
