SELECT (SELECT coalesce(sum(count), 0) FROM counttable)::bigint, (SELECT count(*) FROM nodetable)
