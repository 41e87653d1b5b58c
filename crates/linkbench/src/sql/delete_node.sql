DELETE FROM nodetable WHERE id = $1 AND type = $2
