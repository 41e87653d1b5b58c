PREPARE register (integer) AS SELECT cashregisterid, customerid, price FROM {table} WHERE cashregisterid > $1 ORDER BY cashregisterid, customerid, price LIMIT 10
