INSERT INTO nodetable (type, version, time, data) VALUES ($1, $2, $3, $4) RETURNING *
