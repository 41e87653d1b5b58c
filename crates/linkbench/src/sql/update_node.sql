UPDATE nodetable SET version = $1, time = $2, data = $3 WHERE id = $4 AND type = $5
