SELECT id1, id2, link_type, visibility, data, version, time FROM linktable
WHERE id1 = $1 AND link_type = $2 AND time >= $3 AND time <= $4 AND visibility = 1
ORDER BY time DESC LIMIT $5 OFFSET $6
