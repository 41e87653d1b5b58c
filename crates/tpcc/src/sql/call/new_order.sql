SELECT * FROM tpcc_new_order($1, $2, $3, $4, $5, $6, $7)
