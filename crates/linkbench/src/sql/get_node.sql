SELECT id, type, version, time, data FROM nodetable WHERE id = $1
