SELECT visibility FROM linktable WHERE id1 = $1 AND id2 = $2 AND link_type = $3 FOR UPDATE
