INSERT INTO counttable (id, link_type, count, time, version) VALUES ($1, $2, $3, $4, 0)
ON CONFLICT ON CONSTRAINT counttable_pkey DO UPDATE
SET count = counttable.count + $3, version = counttable.version + 1, time = $4
