-- Nodes and types whose row of counttable differs from the visible links: their number, and the first one.
-- Without visible links, the count is 0 or the row is missing. With visible links, there must be a row.
SELECT count(*), min(format('id %s, link_type %s: %s visible links, count %s', id, type, visible, count))
FROM (
    SELECT coalesce(id1, id) AS id, coalesce(l.link_type, c.link_type) AS type, coalesce(visible, 0) AS visible, count
    FROM (
        SELECT id1, link_type, count(*) AS visible
        FROM linktable
        WHERE visibility = 1
        GROUP BY id1, link_type
    ) AS l
    FULL JOIN counttable AS c ON id1 = id AND l.link_type = c.link_type
) AS pair
WHERE count IS DISTINCT FROM visible
