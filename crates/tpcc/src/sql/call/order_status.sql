SELECT * FROM tpcc_order_status($1, $2, $3, $4)
