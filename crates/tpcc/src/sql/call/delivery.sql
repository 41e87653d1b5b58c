SELECT * FROM tpcc_delivery($1, $2)
