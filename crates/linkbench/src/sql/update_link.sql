UPDATE linktable SET visibility = $1, data = $2, version = $3, time = $4 WHERE id1 = $5 AND id2 = $6 AND link_type = $7
