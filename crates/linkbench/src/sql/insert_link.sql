INSERT INTO linktable (id1, id2, link_type, visibility, data, version, time) VALUES ($1, $2, $3, $4, $5, $6, $7)
