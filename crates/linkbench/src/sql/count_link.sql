SELECT count FROM counttable WHERE id = $1 AND link_type = $2
