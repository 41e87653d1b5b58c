UPDATE counttable SET count = count + $1, version = version + 1, time = $2 WHERE id = $3 AND link_type = $4
