SELECT * FROM tpcc_payment($1, $2, $3, $4, $5, $6, $7)
