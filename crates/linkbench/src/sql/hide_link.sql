UPDATE linktable SET visibility = 0 WHERE id1 = $1 AND id2 = $2 AND link_type = $3
